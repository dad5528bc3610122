"""The script a job runs for an sbatch script: what Slurm would have set, then that script.

On a Slurm site whose own variables and `srun` are there, those are used and nothing is put in
their way. The text is POSIX sh; what it sets for the job begins with SLURM_, its own with tw_.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.compat.embedding import (
    NUMBER,
    PLACE,
    change_directory,
    export,
    run_file,
    write_file,
)
from broker.compat.slurm_layout import Layout
from federation.jobs import ArraySpec


@dataclass(frozen=True, slots=True)
class Setting:
    """What the wrapper is made of. `said` are variables set only where their option was given;
    `native` = only a Slurm site's own srun will do."""

    script: str
    layout: Layout
    name: str
    arguments: Sequence[str] = ()
    array: ArraySpec | None = None
    step: int = 1
    directory: str = ""
    stdin: str = "/dev/null"
    said: dict[str, str] = field(default_factory=dict)
    walltime_s: int | None = None
    native: bool = False


def wrap(setting: Setting) -> str:
    """The text of the script that runs `setting.script` unchanged."""
    parts = [
        "#!/bin/sh\n",
        "# Written by tradewind: the SLURM_* variables of an sbatch script, then it, unchanged.\n",
        PLACE,
        NUMBER,
        _whether_native(setting),
        'if [ -z "$tw_slurm" ]; then\n',
        _fixed(setting),
        _found(setting),
        "" if setting.native else write_file("srun", SRUN) + write_file("scontrol", SCONTROL),
        "PATH=$tw_dir:$PATH; export PATH\n",
        "fi\n",
        _array(setting.array, setting.step) if setting.array else "",
        change_directory(setting.directory) if setting.directory else "",
        write_file("slurm_script", setting.script),
        run_file("slurm_script", setting.arguments, setting.stdin),
    ]
    return "".join(parts)


def _whether_native(setting: Setting) -> str:
    test = 'tw_slurm=\n[ -z "${SLURM_JOB_ID:-}" ] || ! command -v srun >/dev/null || tw_slurm=yes\n'
    if setting.native:
        test += (
            '[ -n "$tw_slurm" ] || { echo "tradewind: this script needs a Slurm site" >&2;'
            " exit 125; }\n"
        )
        if setting.layout.nodes > 1:
            # One process per node is started; the script belongs to the first alone, and its
            # srun shares the nodes with the processes that wait here.
            test += '[ "${TRADEWIND_RANK:-0}" = 0 ] || exit 0\nexport SLURM_OVERLAP=1\n'
        return test
    return test if setting.layout.nodes == 1 else "tw_slurm=\n"


def _fixed(setting: Setting) -> str:
    """Variables known when the script was read."""
    layout = setting.layout
    times = f"(x{layout.nodes})" if layout.nodes > 1 else ""
    known = {
        "SLURM_JOB_NAME": setting.name,
        "SLURM_JOB_NUM_NODES": str(layout.nodes),
        "SLURM_NNODES": str(layout.nodes),
        "SLURM_NTASKS": str(layout.tasks),
        "SLURM_NPROCS": str(layout.tasks),
        "SLURM_TASKS_PER_NODE": f"{layout.tasks_per_node}{times}",
        "SLURM_CPUS_ON_NODE": str(layout.cpus),
        "SLURM_JOB_CPUS_PER_NODE": f"{layout.cpus}{times}",
        "SLURM_EXPORT_ENV": "ALL",
        **setting.said,
    }
    if layout.gpus:
        known["SLURM_GPUS_ON_NODE"] = str(layout.gpus)
    return "".join(export(name, value) for name, value in known.items())


def _found(setting: Setting) -> str:
    """Variables known at the site."""
    text = FOUND
    if setting.layout.gpus:
        text += 'export SLURM_JOB_GPUS="${CUDA_VISIBLE_DEVICES:-}"\n'
    if setting.walltime_s:
        text += f"export SLURM_JOB_END_TIME=$((SLURM_JOB_START_TIME + {setting.walltime_s}))\n"
    return text


FOUND = """\
export SLURM_JOB_ID=$tw_number SLURM_JOBID=$tw_number
export SLURM_SUBMIT_DIR="$tw_home" SLURM_TASK_PID=$$
export SLURM_PROCID=${TRADEWIND_RANK:-0} SLURM_NODEID=${TRADEWIND_RANK:-0} SLURM_LOCALID=0
export SLURM_GTIDS=${TRADEWIND_RANK:-0}
tw_node=$(uname -n) && tw_node=${tw_node%%.*}
export SLURMD_NODENAME="$tw_node" SLURM_SUBMIT_HOST="$tw_node"
tw_head=${TRADEWIND_HEAD_ADDRESS:-} && tw_head=${tw_head%:*}
[ "$SLURM_NNODES" -gt 1 ] && [ -n "$tw_head" ] || tw_head=$tw_node
export SLURM_JOB_NODELIST="$tw_head" SLURM_NODELIST="$tw_head"
export SLURM_CLUSTER_NAME="${TRADEWIND_CLUSTER:-tradewind}"
export SLURM_JOB_PARTITION="${SLURM_JOB_PARTITION:-${TRADEWIND_POOL:-tradewind}}"
export SLURM_JOB_USER="$(id -un 2>/dev/null)" SLURM_JOB_UID="$(id -u)"
export SLURM_JOB_START_TIME="$(date +%s)" ENVIRONMENT=BATCH
tw_try=${TRADEWIND_ATTEMPT##*-}
[ "${tw_try:-1}" -le 1 ] 2>/dev/null || export SLURM_RESTART_COUNT=$((tw_try - 1))
"""


def _array(array: ArraySpec, step: int) -> str:
    """Every task of an array has an id of its own, as in Slurm: the array's, plus 1, plus its
    index."""
    runs = array.tasks.runs
    known = {
        "SLURM_ARRAY_TASK_COUNT": array.tasks.count,
        "SLURM_ARRAY_TASK_MIN": runs[0][0],
        "SLURM_ARRAY_TASK_MAX": runs[-1][1],
        "SLURM_ARRAY_TASK_STEP": step,
    }
    text = "".join(export(name, str(value)) for name, value in known.items())
    text += 'export SLURM_ARRAY_TASK_ID="${TRADEWIND_TASK:-}"\n'
    return text + (
        'if [ -z "$tw_slurm" ]; then\n'
        "export SLURM_ARRAY_JOB_ID=$tw_number\n"
        "SLURM_JOB_ID=$((tw_number + 1 + SLURM_ARRAY_TASK_ID)) && SLURM_JOBID=$SLURM_JOB_ID\n"
        "fi\n"
    )


def arguments_text(arguments: Sequence[str]) -> str:
    """Words as one would type them."""
    return " ".join(shlex.quote(word) for word in arguments)


SCONTROL = """\
#!/bin/sh
# The one thing scontrol does outside Slurm: names of the nodes, a line each.
case "${1:-} ${2:-}" in
  "show hostnames"|"show hostname")
    printf '%s\\n' "${3:-$SLURM_JOB_NODELIST}" | tr , '\\n' ;;
  *) echo "scontrol: only 'show hostnames' is there outside Slurm" >&2; exit 1 ;;
esac
"""

# Starts this node's share of the tasks, in blocks as Slurm lays them out, and ends as the worst.
SRUN = """\
#!/bin/sh
refuse() { echo "srun: $1 is not there outside Slurm" >&2; exit 1; }
tasks= nodes= per_node= cards=${SLURM_GPUS_PER_TASK:-} label= kill= dir=
while [ $# -gt 0 ]; do
  key= value=
  case $1 in
    --) shift; break ;;
    -[nNDGcmJWApSqt]) key=$1 value=${2:-}; shift ;;
    -[nNDGcmJWApSqt]*) key=${1%"${1#-?}"} value=${1#-?} ;;
    --label|--kill-on-bad-exit|--unbuffered|--quiet|--verbose|--exact|--overlap|--exclusive\
|--overcommit|--oversubscribe|--no-kill|--preserve-env|--propagate|--contiguous) key=$1 ;;
    --*=*) key=${1%%=*} value=${1#*=} ;;
    --*) key=$1 value=${2:-}; shift ;;
    -*) key=$1 ;;
    *) break ;;
  esac
  shift
  case $key in
    -n|--ntasks) tasks=$value ;;
    -N|--nodes) nodes=${value%%-*} ;;
    -D|--chdir) dir=$value ;;
    --ntasks-per-node) per_node=$value ;;
    --gpus-per-task) cards=${value##*:} ;;
    -l|--label) label=yes ;;
    -K*|--kill-on-bad-exit) kill=yes ;;
    --gres|--gpus-per-node)
      [ "${value##*:}" = "${SLURM_GPUS_ON_NODE:-0}" ] || refuse "$key=$value" ;;
    -G|--gpus)
      [ "${value##*:}" = $((${SLURM_GPUS_ON_NODE:-0} * ${SLURM_NNODES:-1})) ] \
|| refuse "$key=$value" ;;
    --mpi) [ "$value" = none ] || refuse "--mpi=$value" ;;
    --export) [ "$value" = ALL ] || refuse "--export=$value" ;;
    -[cmJWApSqtuQvOskE]|-v*|--cpus-per-task|--cpu-bind|--cpu_bind|--mem-bind|--mem_bind\
|--gpu-bind|--hint|--distribution|--mem|--mem-per-cpu|--mem-per-gpu|--job-name|--wait\
|--threads-per-core|--cpu-freq|--gpu-freq|--cpus-per-gpu|--ntasks-per-gpu|--account|--partition\
|--acctg-freq|--comment|--core-spec|--accel-bind|--qos|--time|--unbuffered|--quiet|--verbose\
|--exact|--overlap|--exclusive|--overcommit|--oversubscribe|--no-kill|--preserve-env|--propagate\
|--contiguous) ;;
    *) refuse "$key" ;;
  esac
done
[ $# -gt 0 ] || { echo "srun: no program to start" >&2; exit 1; }
all=${SLURM_NNODES:-1}
if [ -z "$tasks" ]; then
  if [ -n "$nodes" ]; then tasks=$((nodes * ${per_node:-${SLURM_NTASKS_PER_NODE:-1}}))
  elif [ -n "$per_node" ]; then tasks=$((all * per_node))
  else tasks=${SLURM_NTASKS:-1}; fi
fi
nodes=${nodes:-$all}
[ "$nodes" -le "$all" ] || { echo "srun: $nodes nodes of $all" >&2; exit 1; }
[ "$nodes" -le "$tasks" ] || nodes=$tasks
node=${TRADEWIND_RANK:-0}
[ "$node" -lt "$nodes" ] || exit 0
each=$((tasks / nodes)) more=$((tasks % nodes))
first=$((node * each + (node < more ? node : more)))
mine=$((each + (node < more ? 1 : 0)))
[ -z "$dir" ] || cd "$dir" || exit 1
export SLURM_NTASKS=$tasks SLURM_NPROCS=$tasks SLURM_NNODES=$nodes SLURM_NODEID=$node
export SLURM_STEP_ID=${SLURM_STEP_ID:-0} SLURM_STEPID=${SLURM_STEP_ID:-0}
export SLURM_STEP_NUM_TASKS=$tasks SLURM_STEP_NUM_NODES=$nodes
show() { # rank and cards of task $1 of this node
  SLURM_LOCALID=$1 SLURM_PROCID=$((first + $1)); export SLURM_LOCALID SLURM_PROCID
  if [ -n "$cards" ] && [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    CUDA_VISIBLE_DEVICES=$(printf %s "$CUDA_VISIBLE_DEVICES" \
| cut -d, -f$(($1 * cards + 1))-$((($1 + 1) * cards)))
    export CUDA_VISIBLE_DEVICES
  fi
}
if [ "$mine" = 1 ] && [ -z "$label" ]; then show 0; exec "$@"; fi
codes=$(mktemp -d) || exit 1
pids= task=0
trap 'kill -TERM $pids 2>/dev/null' TERM
trap 'kill -INT $pids 2>/dev/null' INT
trap 'kill -USR1 $pids 2>/dev/null' USR1
trap 'kill -USR2 $pids 2>/dev/null' USR2
while [ "$task" -lt "$mine" ]; do
  if [ -n "$label" ]; then
    (show $task; { "$@" 2>&1; echo $? > "$codes/$task"; } | sed "s/^/$SLURM_PROCID: /") &
  else
    (show $task; exec "$@") &
  fi
  pids="$pids $!" task=$((task + 1))
done
worst=0 task=0
for pid in $pids; do
  wait "$pid"; code=$?
  while [ "$code" -gt 128 ] && kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
  [ ! -s "$codes/$task" ] || code=$(cat "$codes/$task")
  [ "$code" -le "$worst" ] || worst=$code
  [ -z "$kill" ] || [ "$code" = 0 ] || kill -TERM $pids 2>/dev/null
  task=$((task + 1))
done
rm -rf "$codes"
exit "$worst"
"""
