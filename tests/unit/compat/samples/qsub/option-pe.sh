#!/bin/bash
#$ -pe smp 4
#$ -cwd
echo $JOB_ID
