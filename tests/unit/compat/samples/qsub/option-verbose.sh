#!/bin/bash
#$ -verbose
#$ -cwd
echo $JOB_ID
