#!/bin/bash
#$ -sc x
#$ -cwd
echo $JOB_ID
