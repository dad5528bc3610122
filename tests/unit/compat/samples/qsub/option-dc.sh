#!/bin/bash
#$ -dc x
#$ -cwd
echo $JOB_ID
