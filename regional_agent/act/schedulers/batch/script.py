"""The scripts that run at the node: plain POSIX shell, because nothing else is sure to be there.

`job.sh` takes the claim on its task by creating a file that must not exist: of two copies of a
job, however they came about, one runs. It runs the program in a process group of its own, passes
a stop on, ends it at its own max_runtime, and leaves a mark that says how it ended. `rank.sh`
is one process of the program: its environment, its log. Where the attempt has a contact deadline,
both keep it (`deadlines.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from regional_agent.act.keeper.layout import AttemptDir, attempts_dir
from regional_agent.act.schedulers.batch.system import Traits
from regional_agent.act.schedulers.port import LaunchOrder

LOOK_MAX_S = 15
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_JOB = r"""
umask 077
if [ -z "$TW_ARRAY" ]; then TW_TASK=0
elif [ -n "$TW_TABLE" ]; then TW_TASK=$(sed -n "$((TW_INDEX - TW_FIRST + 1))p" "$TW_DIR/$TW_TABLE")
else TW_TASK=$TW_INDEX; fi
tw_claim=$TW_DIR/claims/${TW_MEMBER:-$TW_TASK}
@BEFORE_CLAIM@
if [ -e "$tw_claim" ]; then
  read -r tw_word tw_at < "$tw_claim"
  # Taken back from an earlier part of the slice and given to this one.
  if [ "$tw_word" = dropped ] && [ "$tw_at" -lt "$TW_PART" ]; then tw_claim=$tw_claim.$TW_PART; fi
fi
if ! (set -C; echo "run $TW_LOCAL" > "$tw_claim") 2>/dev/null; then
  if [ ! -e "$tw_claim" ]; then echo "tradewind: $tw_claim cannot be made" >&2; exit 99; fi
  echo "$TW_TASK $TW_LOCAL duplicate, unrun" >> "$TW_DIR/duplicates"
  exit 0
fi
# Whole once its last line is there; when it was made is when the task ended.
tw_mark() { { echo "$1 $2"; times; echo .; } > "$TW_DIR/marks/${tw_claim##*/}"; }
if [ -e "$TW_DIR/cancelled" ]; then tw_mark unrun 0; exit 0; fi
@BAR@
export TW_TASK TW_LOCAL
. "$TW_DIR/env.sh"
tw_cause=exit
tw_pid=
tw_stop() {
  [ "$tw_cause" = exit ] && tw_cause=$1
  [ -n "$tw_pid" ] || return 0
  tw_grace=$TW_GRACE_S
  if [ "$1" = fenced ]; then  # nothing here may wait for a disk or a scheduler
    kill -TERM $tw_killer 2>/dev/null; tw_killer=
  else
    [ -s "$TW_DIR/cancelled" ] && read -r tw_grace < "$TW_DIR/cancelled"
    @STOP_RANKS@
  fi
  kill -TERM "-$tw_pid" 2>/dev/null
  kill -CONT "-$tw_pid" 2>/dev/null
  [ -n "$tw_killer" ] || { tw_after "$tw_grace" "kill -KILL -$tw_pid" & tw_killer=$!; }
}
@AFTER@
tw_killer=; tw_timer=; tw_fence=; tw_guard=
trap 'tw_stop stopped' @STOP_SIGNALS@
trap 'tw_stop timed_out' @TIME_SIGNALS@
cd "$TW_DIR/work" || exit 99
setsid @LAUNCH@ </dev/null &
tw_pid=$!
[ "$tw_cause" = exit ] || tw_stop "$tw_cause"
if [ "$TW_MAX_S" -gt 0 ]; then tw_after "$TW_MAX_S" "kill -ALRM $$" & tw_timer=$!; fi
@FENCE@
@GUARD@
while :; do wait "$tw_pid"; tw_code=$?; kill -0 "$tw_pid" 2>/dev/null || break; done
trap '' @STOP_SIGNALS@ @TIME_SIGNALS@ VTALRM
kill -KILL "-$tw_pid" 2>/dev/null
for tw_each in $tw_killer $tw_timer $tw_fence $tw_guard; do kill -TERM "$tw_each" 2>/dev/null; done
[ -s "$TW_DIR/marks/first.$TW_TASK" ] && read -r tw_code < "$TW_DIR/marks/first.$TW_TASK"
tw_mark "$tw_cause" "$tw_code"
exit "$tw_code"
"""

_AFTER = r"""# A wait that ends with whoever started it, and leaves no sleep behind. What is sent to
# the whole process group is for the script.
tw_after() {
  trap '' USR1 USR2 ALRM
  trap 'kill $tw_sleep 2>/dev/null; exit 0' TERM
  sleep "$1" & tw_sleep=$!
  wait $tw_sleep && eval "$2"
}
"""

_KEEP = r"""# Seconds of contact left, empty where the file system does not say. That it is over is
# looked at last: it was written before newer contact was.
tw_contact_left() {
  tw_left=
  true < "$TW_CONTACT" && touch "$tw_now" || return 0
  tw_left=$(($(stat -c %Y "$TW_CONTACT") + TW_FENCE_S - $(stat -c %Y "$tw_now") - 1))
  [ "$tw_left" -le "$TW_FENCE_S" ] || tw_left=$TW_FENCE_S
  [ ! -e "$TW_DIR/fenced" ] || tw_left=0
} 2>/dev/null
# Stop a program by $1 when contact is over, and kill it by $2 where that is late, as on a machine
# that slept. What burns down to the deadline is a process of its own, which needs no disk.
tw_keep() {
  trap '' USR1 USR2 ALRM
  trap 'kill $tw_fuse $tw_nap 2>/dev/null; rm -f "$tw_now"; exit 0' TERM
  tw_fuse=; tw_over=
  while :; do
    tw_contact_left
    if [ "${tw_left:-0}" -gt 0 ] && [ -z "$tw_over" ]; then
      tw_old=$tw_fuse
      tw_after "$tw_left" "$1" & tw_fuse=$!
      [ -z "$tw_old" ] || kill -TERM "$tw_old" 2>/dev/null
    elif [ -n "$tw_left" ] && [ "$tw_left" -le 0 ]; then
      [ -n "$tw_over" ] || { tw_over=yes; touch "$TW_DIR/fenced"; eval "$1"; }
      [ $((tw_left + TW_GRACE_S)) -gt 0 ] || eval "$2"
    fi
    sleep "$TW_LOOK_S" & tw_nap=$!
    wait $tw_nap
  done
} 2>/dev/null
"""

_BAR = _AFTER + _KEEP + r"""tw_now=$TW_DIR/now.${tw_claim##*/}
tw_contact_left
if [ "${tw_left:-0}" -le 0 ]; then
  touch "$TW_DIR/fenced"; rm -f "$tw_now"
  tw_mark barred 0
  exit 0
fi
"""
_FENCE = r"""trap 'tw_stop fenced' VTALRM
tw_keep "kill -VTALRM $$" "kill -KILL -$tw_pid" </dev/null >/dev/null & tw_fence=$!
"""

_GUARD = r"""# What is killed is the process group of this script, which its program is not in.
setsid /bin/sh -c 'while kill -0 "$1"; do sleep 1; done; kill -KILL "-$2"' guard $$ "$tw_pid" \
  </dev/null >/dev/null 2>&1 & tw_guard=$!
"""

_FENCE_RANK = _AFTER + _KEEP + r"""tw_now=$TW_DIR/now.$TW_TASK.$tw_rank
tw_keep 'trap "" TERM; kill -TERM 0; sleep "$TW_GRACE_S"; kill -KILL 0' 'kill -KILL 0' \
  </dev/null >/dev/null & tw_fence=$!
"""
"""Who started the ranks may be unable to reach them: each keeps the deadline of those beside it."""

_RANK = r"""
tw_rank=${TW_RANK:-${SLURM_PROCID:-0}}
tw_log=output
[ -n "$TRADEWIND_TASK" ] && tw_log=task-$TRADEWIND_TASK
[ "$tw_rank" = 0 ] || tw_log=$tw_log.r$tw_rank
exec >> "$TW_DIR/logs/$tw_log" 2>&1
export TRADEWIND_RANK="$tw_rank" RANK="$tw_rank"
export LOCAL_RANK="${TW_LOCAL_RANK:-${SLURM_LOCALID:-0}}"
if [ "$TW_CARDS" -gt 0 ] && [ -n "$CUDA_VISIBLE_DEVICES" ]; then
  if [ "$TW_REPLICAS" -gt 1 ] && [ -z "$TW_CARDS_ARE_MINE" ]; then
    tw_from=$((LOCAL_RANK * TW_CARDS + 1))
    CUDA_VISIBLE_DEVICES=$(echo "$CUDA_VISIBLE_DEVICES" |
      cut -d, -f"$tw_from-$((tw_from + TW_CARDS - 1))")
    export CUDA_VISIBLE_DEVICES
  fi
  export TRADEWIND_ACCELERATORS="$TW_ACCELERATOR:$CUDA_VISIBLE_DEVICES"
fi
[ "$TW_CARDS" -gt 0 ] || export CUDA_VISIBLE_DEVICES=
cd "$HOME" || exit 99
if [ "$TW_REPLICAS" -eq 1 ]; then exec @PROGRAM@; fi
@PROGRAM@ &
tw_pid=$!
tw_fence=
@FENCE@
trap 'kill -TERM $tw_pid 2>/dev/null' TERM
while :; do wait "$tw_pid"; tw_code=$?; kill -0 "$tw_pid" 2>/dev/null || break; done
[ -z "$tw_fence" ] || kill -TERM "$tw_fence" 2>/dev/null
# The member that failed first says how the gang ended; the others are killed because of it.
[ "$tw_code" = 0 ] || (set -C; echo "$tw_code" > "$TW_DIR/marks/first.$TW_TASK") 2>/dev/null
exit "$tw_code"
"""


def job_script(
    place: AttemptDir, order: LaunchOrder, traits: Traits, part: int, table: str
) -> str:
    """The batch script of one part of an attempt; `table` names the file that maps the indices
    of its elements to tasks, empty where they are the same."""
    said = {
        "TW_DIR": str(place.root),
        "TW_PART": part,
        "TW_ARRAY": "" if order.tasks is None else "yes",
        "TW_TABLE": table,
        "TW_FIRST": traits.first_index,
        "TW_MAX_S": order.max_runtime_s,
        **_deadline(place.state, order),
    }
    return "#!/bin/sh\n" + _assign(said) + traits.header + _body(order, traits)


def pack_script(
    state: Path, members: Sequence[str], order: LaunchOrder, traits: Traits
) -> str:
    """The batch script of a pack: each element is the attempt in its place."""
    said = {
        "TW_ATTEMPTS": str(attempts_dir(state)),
        "TW_PART": 0,
        "TW_ARRAY": "",
        "TW_TABLE": "",
        "TW_MAX_S": order.max_runtime_s,
        "TW_GRACE_S": order.grace_s,
    }
    which = (
        f"set -- {shlex.join(members)}\nshift $((TW_INDEX - {traits.first_index}))\n"
        f"TW_DIR=$TW_ATTEMPTS/$1 TW_INDEX=\n{traits.alone}"
    )
    return "#!/bin/sh\n" + _assign(said) + traits.header + which + _body(order, traits)


def _body(order: LaunchOrder, traits: Traits) -> str:
    gang, rank = order.replicas > 1, '/bin/sh "$TW_DIR/rank.sh"'
    launch = f"{traits.launcher} {rank}" if gang else rank
    fenced = bool(order.fence_after_s)
    body = _JOB.replace("@BAR@", _BAR if fenced else "")
    body = body.replace("@AFTER@", "" if fenced else _AFTER)
    body = body.replace("@FENCE@", _FENCE if fenced else "")
    body = body.replace("@GUARD@", _GUARD if traits.kills_group else "")
    body = body.replace("@STOP_RANKS@", traits.stop_ranks if gang else ":")
    body = body.replace("@BEFORE_CLAIM@", traits.before_claim)
    body = body.replace("@STOP_SIGNALS@", traits.stop_signals)
    body = body.replace("@TIME_SIGNALS@", traits.time_signals)
    return body.replace("@LAUNCH@", launch.replace("@RANKS@", str(order.replicas)))


def rank_script(place: AttemptDir, order: LaunchOrder) -> str:
    """The script of one process of the program."""
    cards = 0
    if order.places and order.accelerator not in ("", "CPU"):
        cards = len(order.places[0].accelerators)
    said = {
        "TW_DIR": str(place.root),
        "TW_CARDS": cards,
        "TW_REPLICAS": order.replicas,
        "TW_ACCELERATOR": order.accelerator,
        **_deadline(place.state, order),
    }
    fenced_gang = order.fence_after_s and order.replicas > 1
    body = _RANK.replace("@FENCE@", _FENCE_RANK if fenced_gang else "")
    body = body.replace("@PROGRAM@", _program(place, order))
    return "#!/bin/sh\numask 077\n" + _assign(said) + body


def environment(place: AttemptDir, order: LaunchOrder, usual: dict[str, str]) -> str:
    """What every process of the program finds in its environment beside what the batch system
    and `rank.sh` set. `usual` may be said otherwise by the order."""
    env = usual | dict(order.env)
    env |= {
        "HOME": str(place.work),
        "TRADEWIND_JOB": order.job,
        "TRADEWIND_ATTEMPT": order.uid,
        "TRADEWIND_WORLD_SIZE": str(order.replicas),
        "WORLD_SIZE": str(order.replicas),
        "TRADEWIND_POOL": order.places[0].pool if order.places else "",
    }
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in env.items()
        if _VARIABLE.fullmatch(name)  # no shell could hold another
    ]
    lines.append('export TRADEWIND_NODE="${TW_NODE:-${SLURMD_NODENAME:-$(hostname)}}"')
    if order.tasks is None:
        lines.append("export TRADEWIND_TASK=")
    else:
        lines.append('export TRADEWIND_TASK="$TW_TASK"')
        lines.append('[ -z "$SLURM_ARRAY_TASK_ID" ] || export SLURM_ARRAY_TASK_ID="$TW_TASK"')
    if order.replicas > 1:
        lines.append('export MASTER_ADDR="${TW_HEAD:-$(hostname)}"')
        lines.append("export MASTER_PORT=${TW_PORT:-$((20000 + TW_LOCAL % 20000))}")
        lines.append('export TRADEWIND_HEAD_ADDRESS="$MASTER_ADDR:$MASTER_PORT"')
    return "\n".join(lines) + "\n"


def _deadline(state: Path, order: LaunchOrder) -> dict[str, object]:
    """What scripts know of grace and contact. A deadline of a minute is looked at every 6 s."""
    if not order.fence_after_s:
        return {"TW_GRACE_S": order.grace_s}
    look_s = max(1, min(order.fence_after_s // 10, LOOK_MAX_S))
    return {
        "TW_GRACE_S": order.grace_s,
        "TW_FENCE_S": order.fence_after_s,
        "TW_LOOK_S": look_s,
        "TW_CONTACT": str(state / "contact"),
    }


def _program(place: AttemptDir, order: LaunchOrder) -> str:
    if not order.run:
        return " ".join(map(shlex.quote, order.argv))
    script = shlex.quote(str(place.script))
    return script if order.run.startswith("#!") else f"/bin/sh {script}"


def _assign(said: dict[str, object]) -> str:
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in said.items())
