#!/bin/bash
#$ -ar x
#$ -cwd
echo $JOB_ID
