#!/bin/bash
#BSUB -n 4
true
