#!/bin/bash
#$ -cwd -pe smp 2
qrsh -inherit host a
