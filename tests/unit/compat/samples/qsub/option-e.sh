#!/bin/bash
#$ -e err.$JOB_ID
#$ -cwd
echo $JOB_ID
