#!/bin/bash
#$ -P proj
#$ -cwd
echo $JOB_ID
