#!/bin/bash
#$ -shell n
#$ -cwd
echo $JOB_ID
