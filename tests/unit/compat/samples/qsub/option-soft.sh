#!/bin/bash
#$ -soft
#$ -cwd
echo $JOB_ID
