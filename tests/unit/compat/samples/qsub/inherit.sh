#!/bin/bash
#$ -V -cwd
#$ -v 1BAD=2
true
