#!/bin/bash
#$ -ot x
#$ -cwd
echo $JOB_ID
