#!/bin/bash
#$ -frobnicate 3
#$ -cwd -zz
true
