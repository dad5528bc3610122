#!/bin/bash
#PBS -l nodes=1
true
