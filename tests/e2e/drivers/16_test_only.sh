#!/bin/bash
# Would it start? Nothing is submitted.
set -euo pipefail
sbatch --test-only -J test-only -n 2 --wrap true 2> said
grep -q 'to start at .* using 2 processors' said
if sbatch --test-only -J test-only -n 4000 --mem=1T --wrap true 2> said; then exit 1; fi
[ -z "$(squeue -h -u "$USER" -n test-only -t all)" ]
