#!/bin/bash
# scancel by name and user; the other job goes on.
set -euo pipefail
one=$(sbatch --parsable -J victim --wrap 'sleep 600')
two=$(sbatch --parsable -J bystander --wrap 'sleep 2')
scancel -u "$USER" --name victim
until [ -z "$(squeue -h -j "$one,$two")" ]; do sleep 0.5; done
sacct -j "$one" -n -X -P -o State | grep -q CANCELLED
sacct -j "$two" -n -X -P -o State | grep -qx COMPLETED
