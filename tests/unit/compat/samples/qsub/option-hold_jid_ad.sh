#!/bin/bash
#$ -hold_jid_ad 12
#$ -cwd
echo $JOB_ID
