#!/bin/bash
#$ -now n
#$ -cwd
echo $JOB_ID
