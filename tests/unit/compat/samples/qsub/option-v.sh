#!/bin/bash
#$ -v A=1,B
#$ -cwd
echo $JOB_ID
