#!/bin/bash
#$ -cwd
#$ -cwd
echo $JOB_ID
