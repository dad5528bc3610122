#!/bin/bash
# Submit, take the fourth word, poll squeue until the job is gone, read its output.
set -euo pipefail
cat > job.sh <<'EOF'
#!/bin/bash
#SBATCH --job-name=awk
#SBATCH --time=00:05:00
#SBATCH --mem=100M
sleep 1
echo "result of $SLURM_JOB_ID"
EOF
id=$(sbatch job.sh | awk '{print $4}')
while [ "$(squeue -h -j "$id" | wc -l)" -gt 0 ]; do sleep 0.5; done
grep -qx "result of $id" "slurm-$id.out"
