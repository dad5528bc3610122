#!/bin/bash
#$ -terse
#$ -cwd
echo $JOB_ID
