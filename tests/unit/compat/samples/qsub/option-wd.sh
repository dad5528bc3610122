#!/bin/bash
#$ -wd /data
#$ -cwd
echo $JOB_ID
