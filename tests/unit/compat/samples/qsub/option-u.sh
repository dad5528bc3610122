#!/bin/bash
#$ -u me
#$ -cwd
echo $JOB_ID
