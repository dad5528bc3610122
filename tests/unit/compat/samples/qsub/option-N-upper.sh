#!/bin/bash
#$ -N name
#$ -cwd
echo $JOB_ID
