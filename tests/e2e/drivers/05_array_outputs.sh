#!/bin/bash
# An array; its tasks' files by %A and %a.
set -euo pipefail
cat > job.sh <<'EOF'
#!/bin/bash
#SBATCH --array=1-4%2
#SBATCH --output=task_%A_%a.log
echo "$((SLURM_ARRAY_TASK_ID * SLURM_ARRAY_TASK_ID)) of $SLURM_ARRAY_TASK_COUNT"
EOF
id=$(sbatch --parsable job.sh)
until [ -z "$(squeue -h -j "$id")" ]; do sleep 0.5; done
for n in 1 2 3 4; do grep -qx "$((n * n)) of 4" "task_${id}_$n.log"; done
