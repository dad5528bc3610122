#!/bin/bash
#$ -display :0
#$ -cwd
echo $JOB_ID
