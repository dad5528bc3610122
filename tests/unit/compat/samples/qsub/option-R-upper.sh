#!/bin/bash
#$ -R y
#$ -cwd
echo $JOB_ID
