#!/bin/bash
#$ -i in.txt
#$ -cwd
echo $JOB_ID
