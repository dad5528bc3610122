#!/bin/bash
#$ -soft -l fast=1
#$ -hard -l big=1
#$ -cwd
true
