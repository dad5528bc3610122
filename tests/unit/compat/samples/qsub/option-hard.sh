#!/bin/bash
#$ -hard
#$ -cwd
echo $JOB_ID
