#!/bin/bash
#$ -M me@x.org
#$ -cwd
echo $JOB_ID
