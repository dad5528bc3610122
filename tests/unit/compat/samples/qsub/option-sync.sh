#!/bin/bash
#$ -sync y
#$ -cwd
echo $JOB_ID
