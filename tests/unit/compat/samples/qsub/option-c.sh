#!/bin/bash
#$ -c x
#$ -cwd
echo $JOB_ID
