#!/bin/bash
#$ -inherit
#$ -cwd
echo $JOB_ID
