#!/bin/bash
#$ -o out.$JOB_ID
#$ -cwd
echo $JOB_ID
