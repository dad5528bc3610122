"""The script a job runs for a qsub script: what Grid Engine would have set, then that script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from broker.compat.embedding import (
    NUMBER,
    PLACE,
    change_directory,
    export,
    run_file,
    write_file,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What the wrapper is made of; `array` is (first, last, step)."""

    script: str
    name: str
    slots: int = 1
    arguments: Sequence[str] = ()
    shell: str = ""
    array: tuple[int, int, int] | None = None
    directory: str = ""
    parallel: str = ""
    queue: str = ""
    stdin: str = "/dev/null"


def wrap(setting: Setting) -> str:
    """The text of the script that runs `setting.script` unchanged."""
    parts = [
        "#!/bin/sh\n",
        "# Written by tradewind: the variables of a Grid Engine script, then it, unchanged.\n",
        PLACE,
        NUMBER,
        'if [ -z "${JOB_ID:-}" ] || [ -z "${SGE_ROOT:-}" ]; then\n',
        export("JOB_NAME", setting.name),
        export("REQUEST", setting.name),
        export("NSLOTS", str(setting.slots)),
        FOUND,
        _parallel(setting),
        "fi\n",
        _array(setting.array),
        change_directory(setting.directory) if setting.directory else "",
        write_file("sge_script", setting.script),
    ]
    if setting.shell:
        words = "".join(f" {shlex.quote(word)}" for word in setting.arguments)
        start = f'exec {shlex.quote(setting.shell)} "$tw_dir/sge_script"{words}'
        parts.append(f"{start} < {shlex.quote(setting.stdin)}\n")
    else:
        parts.append(run_file("sge_script", setting.arguments, setting.stdin))
    return "".join(parts)


FOUND = """\
export JOB_ID=$tw_number NHOSTS=1 NQUEUES=1 ENVIRONMENT=BATCH RESTARTED=0
export QUEUE="${TRADEWIND_POOL:-tradewind}" HOSTNAME="$(uname -n)"
export SGE_O_WORKDIR="$tw_home" SGE_CWD_PATH="$tw_home" SGE_O_HOME="$HOME" SGE_O_HOST="$HOSTNAME"
export SGE_TASK_ID=undefined SGE_TASK_FIRST=undefined SGE_TASK_LAST=undefined
export SGE_TASK_STEPSIZE=undefined SGE_CELL=default
export JOB_SCRIPT="$tw_dir/sge_script" TMPDIR="$tw_dir" TMP="$tw_dir"
tw_user=$(id -un 2>/dev/null)
export USER="${USER:-$tw_user}" LOGNAME="${LOGNAME:-$tw_user}" SGE_O_LOGNAME="$tw_user"
tw_try=${TRADEWIND_ATTEMPT##*-}
[ "${tw_try:-1}" -le 1 ] 2>/dev/null || export RESTARTED=1
"""


def _parallel(setting: Setting) -> str:
    if not setting.parallel:
        return ""
    return (
        f"{export('PE', setting.parallel)}"
        'export PE_HOSTFILE="$tw_dir/pe_hostfile"\n'
        'echo "$HOSTNAME $NSLOTS $QUEUE@$HOSTNAME UNDEFINED" > "$PE_HOSTFILE"\n'
    )


def _array(array: tuple[int, int, int] | None) -> str:
    if array is None:
        return ""
    first, last, step = array
    return (
        'export SGE_TASK_ID="${TRADEWIND_TASK:-}"\n'
        f"export SGE_TASK_FIRST={first} SGE_TASK_LAST={last} SGE_TASK_STEPSIZE={step}\n"
    )
