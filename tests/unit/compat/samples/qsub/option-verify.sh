#!/bin/bash
#$ -verify
#$ -cwd
echo $JOB_ID
