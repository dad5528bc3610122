#!/bin/bash
#$ -C #!
#$ -cwd
echo $JOB_ID
