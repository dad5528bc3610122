#!/bin/bash
#$ -soft -l fast=1 -hard -l h_rt=10
true
