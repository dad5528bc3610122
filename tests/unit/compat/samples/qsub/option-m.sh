#!/bin/bash
#$ -m bea
#$ -cwd
echo $JOB_ID
