#!/bin/bash
#$ -p -100
#$ -cwd
echo $JOB_ID
