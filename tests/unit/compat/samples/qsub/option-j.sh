#!/bin/bash
#$ -j y
#$ -cwd
echo $JOB_ID
