#!/bin/bash
#$ -tc 3
#$ -cwd
echo $JOB_ID
