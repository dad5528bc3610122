#!/bin/bash
#$ -q all.q
#$ -cwd
echo $JOB_ID
