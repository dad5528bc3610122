#!/bin/bash
#$ -a 202612312359
#$ -cwd
echo $JOB_ID
