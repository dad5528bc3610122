#!/bin/bash
#$ -ckpt x
#$ -cwd
echo $JOB_ID
