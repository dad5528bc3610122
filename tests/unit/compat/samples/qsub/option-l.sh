#!/bin/bash
#$ -l h_rt=3600
#$ -cwd
echo $JOB_ID
