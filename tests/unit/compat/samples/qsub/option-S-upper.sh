#!/bin/bash
#$ -S /bin/bash
#$ -cwd
echo $JOB_ID
