#!/bin/bash
echo hi
#$ -N later -cwd
