#!/bin/bash
# A task array by Grid Engine, and a job deleted.
set -euo pipefail
cat > job.sh <<'EOF'
#!/bin/bash
#$ -cwd -t 2-6:2 -N tasks -j y
echo "task $SGE_TASK_ID of $SGE_TASK_FIRST-$SGE_TASK_LAST:$SGE_TASK_STEPSIZE"
EOF
id=$(qsub job.sh | sed 's/Your job-array \([0-9]*\)\.2-6:2 .*/\1/')
long=$(qsub -terse -cwd -b y sleep 600)
qdel "$long" | grep -q "$long"
while qstat -j "$id" > /dev/null 2>&1 || qstat -j "$long" > /dev/null 2>&1; do sleep 0.5; done
for n in 2 4 6; do grep -qx "task $n of 2-6:2" "tasks.o$id.$n"; done
