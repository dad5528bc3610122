#!/bin/bash
#$ -t 0-5 -pe smp many -l h_rt=soon,h_vmem=lots
true
