#!/bin/bash
#$ -h u
#$ -cwd
echo $JOB_ID
