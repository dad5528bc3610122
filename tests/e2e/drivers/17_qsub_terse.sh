#!/bin/bash
# qsub -terse, then qstat -j until it knows the job no more.
set -euo pipefail
cat > job.sh <<'EOF'
#$ -S /bin/bash
#$ -N terse -cwd -j y
sleep 0.5
echo "job $JOB_ID has $NSLOTS slot"
EOF
id=$(qsub -terse job.sh)
while qstat -j "$id" > /dev/null 2>&1; do sleep 0.5; done
grep -qx "job $id has 1 slot" "terse.o$id"
