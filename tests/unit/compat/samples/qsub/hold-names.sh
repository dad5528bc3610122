#!/bin/bash
#$ -hold_jid "name*"
true
