#!/bin/bash
#$ -r y
#$ -cwd
echo $JOB_ID
