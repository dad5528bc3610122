#!/bin/bash
#$ -nostdin
#$ -cwd
echo $JOB_ID
