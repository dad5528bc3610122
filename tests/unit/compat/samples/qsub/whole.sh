#!/bin/bash
#$ -N blast -cwd -j y -S /bin/bash
#$ -pe smp 8
#$ -l h_rt=12:00:00,h_vmem=4G,mem_free=2G
#$ -t 1-100:10 -tc 4
#$ -m e -M me@example.org
module load blast
blastn -num_threads $NSLOTS -query part.$SGE_TASK_ID
