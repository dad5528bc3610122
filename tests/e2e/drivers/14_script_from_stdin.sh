#!/bin/bash
# A script on standard input, variables by --export, options over the script's own.
set -euo pipefail
id=$(FROM_HERE=seen sbatch --parsable --export=ALL,GIVEN=7,FROM_HERE -J over <<'EOF'
#!/bin/bash
#SBATCH --job-name=script
echo "$GIVEN $FROM_HERE $SLURM_JOB_NAME"
EOF
)
until [ -z "$(squeue -h -j "$id")" ]; do sleep 0.5; done
grep -qx "7 seen over" "slurm-$id.out"
