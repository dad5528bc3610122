#!/bin/bash
# One squeue for many ids, states counted.
set -euo pipefail
ids=()
for n in 1 2 3; do ids+=("$(sbatch --parsable -J many --wrap "sleep 0.$n")"); done
list=$(IFS=,; echo "${ids[*]}")
while :; do
  left=$(squeue --noheader --format='%i %t' --job "$list" | awk '$2 == "PD" || $2 == "R"' | wc -l)
  [ "$left" -gt 0 ] || break
  sleep 0.5
done
[ "$(sacct -X -n -j "$list" -o State | grep -c COMPLETED)" -eq 3 ]
