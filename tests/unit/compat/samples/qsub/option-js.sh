#!/bin/bash
#$ -js x
#$ -cwd
echo $JOB_ID
