#!/bin/bash
#$ -binding x
#$ -cwd
echo $JOB_ID
