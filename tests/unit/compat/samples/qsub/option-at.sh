#!/bin/bash
#$ -@ options.txt
#$ -cwd
echo $JOB_ID
