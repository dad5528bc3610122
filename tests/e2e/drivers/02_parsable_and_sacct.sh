#!/bin/bash
# --parsable, then sacct until the state is final.
set -euo pipefail
printf '#!/bin/bash\n#SBATCH -n 1\nsleep 0.5\n' > job.sh
id=$(sbatch --parsable job.sh | cut -d';' -f1)
for _ in $(seq 60); do
  state=$(sacct -j "$id" -X -n -o State | tr -d ' ')
  case $state in
    COMPLETED) exit 0 ;;
    FAILED|CANCELLED*|TIMEOUT|NODE_FAIL) exit 1 ;;
  esac
  sleep 0.5
done
exit 1
