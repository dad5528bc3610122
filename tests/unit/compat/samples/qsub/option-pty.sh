#!/bin/bash
#$ -pty n
#$ -cwd
echo $JOB_ID
