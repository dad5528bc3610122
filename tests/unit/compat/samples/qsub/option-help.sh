#!/bin/bash
#$ -help
#$ -cwd
echo $JOB_ID
