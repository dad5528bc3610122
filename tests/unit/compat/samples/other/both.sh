#!/bin/bash
#$ -cwd
#SBATCH -n 2
true
