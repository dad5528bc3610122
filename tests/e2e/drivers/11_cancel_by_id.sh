#!/bin/bash
# scancel, then the state says so.
set -euo pipefail
id=$(sbatch --parsable --wrap 'sleep 600')
until [ "$(squeue -h -j "$id" -o %T)" = RUNNING ]; do sleep 0.3; done
scancel "$id"
until [ -z "$(squeue -h -j "$id")" ]; do sleep 0.3; done
sacct -j "$id" -X -n -P -o State | grep -q '^CANCELLED'
