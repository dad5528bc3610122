#!/bin/bash
#$ -l gpu=1,gpu_type=zx81
#$ -cwd
true
