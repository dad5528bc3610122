#!/bin/bash
#$ -ac x
#$ -cwd
echo $JOB_ID
