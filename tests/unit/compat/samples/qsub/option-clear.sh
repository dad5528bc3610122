#!/bin/bash
#$ -clear
#$ -cwd
echo $JOB_ID
