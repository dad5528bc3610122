#!/bin/bash
#$ -dl x
#$ -cwd
echo $JOB_ID
