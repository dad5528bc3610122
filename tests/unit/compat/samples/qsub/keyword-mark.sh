#!/bin/bash
#$Id: x$
#$ -cwd
#$ nonsense
true
