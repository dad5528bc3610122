#!/bin/bash
#$ -A acct
#$ -cwd
echo $JOB_ID
