#!/bin/bash
#$ -masterq x
#$ -cwd
echo $JOB_ID
