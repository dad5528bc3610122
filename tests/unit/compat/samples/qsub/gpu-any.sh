#!/bin/bash
#$ -l gpu
#$ -cwd
python train.py
