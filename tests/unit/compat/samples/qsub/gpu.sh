#!/bin/bash
#$ -l gpu=2,gpu_type=a100,h_rt=1:0:0
#$ -cwd
python train.py
