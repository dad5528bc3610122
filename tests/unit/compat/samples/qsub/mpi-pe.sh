#!/bin/bash
#$ -pe orte 16-32
#$ -cwd
mpirun -np $NSLOTS a
