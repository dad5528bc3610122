#!/bin/bash
#$ -noshell
#$ -cwd
echo $JOB_ID
