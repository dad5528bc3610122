#!/bin/bash
#$ -V
#$ -cwd
echo $JOB_ID
