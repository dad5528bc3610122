#!/bin/bash
#$ -t 1-10
#$ -cwd
echo $JOB_ID
