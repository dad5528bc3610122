#!/bin/bash
#$ -b n
#$ -cwd
echo $JOB_ID
