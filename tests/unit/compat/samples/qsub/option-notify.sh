#!/bin/bash
#$ -notify
#$ -cwd
echo $JOB_ID
