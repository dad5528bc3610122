#!/bin/bash
#$ -hold_jid 12,13
#$ -cwd
echo $JOB_ID
