#!/bin/bash
#$ -jsv x
#$ -cwd
echo $JOB_ID
