#!/bin/bash
# Ask sinfo which partition has room, and send the job there.
set -euo pipefail
where=$(sinfo -h -o '%P %t' | awk '$2 == "idle" || $2 == "mix" {print $1; exit}')
[ -n "$where" ]
id=$(sbatch --parsable -M "$where" --wrap 'echo here' | cut -d';' -f1)
until sacct -j "$id" -X -n -P -o State | grep -qx COMPLETED; do sleep 0.5; done
[ "$(sacct -j "$id" -X -n -P -o NodeList)" = "$where" ]
