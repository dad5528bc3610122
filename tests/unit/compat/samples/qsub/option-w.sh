#!/bin/bash
#$ -w e
#$ -cwd
echo $JOB_ID
