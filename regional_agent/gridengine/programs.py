"""Shell programs of a gang under Grid Engine: text here, laid beside the script of the attempt.

`MEMBERS` runs where the script does and starts the members in the order of the hosts that Grid
Engine gave: here as children, elsewhere by `qrsh -inherit`, which keeps them under its control and
in its accounts, and ends them with the job. Members are told to stop by a file, as the script is: a
signal to qrsh ends the connection, not the program.
"""

from __future__ import annotations

RANKS = "ranks.sh"
LAUNCHER = f'env TW_DIR="$TW_DIR" TW_GRACE_S="$TW_GRACE_S" /bin/sh "$TW_DIR/{RANKS}" @RANKS@'

MEMBERS = r"""
tw_ranks=$1; shift
tw_each=$((NSLOTS / tw_ranks)); tw_rank=0; tw_pids=
mkdir -p "$TW_DIR/ranks"
trap 'touch "$TW_DIR/marks/stop.$TW_TASK"' TERM
while read -r tw_host tw_slots tw_rest <&3; do
  tw_at=0
  while [ "$tw_at" -lt $((tw_slots / tw_each)) ] && [ "$tw_rank" -lt "$tw_ranks" ]; do
    tw_file=$TW_DIR/ranks/$TW_TASK.$tw_rank
    {
      echo "TW_DIR='$TW_DIR' TW_TASK='$TW_TASK' TW_LOCAL='$TW_LOCAL' TW_HEAD='$MASTER_ADDR'"
      echo "TW_RANK='$tw_rank' TW_LOCAL_RANK='$tw_at' TW_GRACE_S='$TW_GRACE_S'"
      echo '. "$TW_DIR/member.sh"'
    } > "$tw_file"
    (
      trap : TERM  # it waits for its member, which has been told too
      if [ "$tw_host" = "$HOSTNAME" ]; then /bin/sh "$tw_file"
      else setsid qrsh -inherit -nostdin "$tw_host" /bin/sh "$tw_file"; fi
      tw_code=$?
      # A deletion ends what qrsh speaks to before the member has ended.
      tw_left=$((TW_GRACE_S + 5))
      while [ -e "$tw_file.up" ] && [ "$tw_left" -gt 0 ]; do sleep 1; tw_left=$((tw_left - 1)); done
      [ "$tw_code" = 0 ] || touch "$TW_DIR/marks/stop.$TW_TASK"
      exit "$tw_code"
    ) 3<&- &
    tw_pids="$tw_pids $!"
    tw_rank=$((tw_rank + 1)); tw_at=$((tw_at + 1))
  done
done 3< "$PE_HOSTFILE"
tw_worst=0
if [ "$tw_rank" -lt "$tw_ranks" ]; then
  echo "tradewind: $tw_rank of $tw_ranks members have a place" >&2
  touch "$TW_DIR/marks/stop.$TW_TASK"; tw_worst=99
fi
for tw_pid in $tw_pids; do
  while :; do wait "$tw_pid"; tw_code=$?; kill -0 "$tw_pid" 2>/dev/null || break; done
  [ "$tw_worst" != 0 ] || tw_worst=$tw_code
done
exit "$tw_worst"
"""

MEMBER = r"""
export TW_DIR TW_TASK TW_LOCAL TW_HEAD TW_RANK TW_LOCAL_RANK
. "$TW_DIR/env.sh"
tw_stop=$TW_DIR/marks/stop.$TW_TASK
tw_up=$TW_DIR/ranks/$TW_TASK.$TW_RANK.up
touch "$tw_up"
tw_pid=
# A deletion is announced to members on other hosts as well, before they are killed.
trap '[ -z "$tw_pid" ] || kill -TERM "$tw_pid" 2>/dev/null' TERM USR1 USR2
setsid /bin/sh "$TW_DIR/rank.sh" &
tw_pid=$!
(
  trap '' USR1 USR2
  while kill -0 $$ 2>/dev/null && [ ! -e "$tw_stop" ]; do sleep 0.5; done
  [ -e "$tw_stop" ] || exit 0
  kill -TERM "$tw_pid"
  sleep "$TW_GRACE_S"
  kill -KILL "-$tw_pid"
) </dev/null >/dev/null 2>&1 &
while :; do wait "$tw_pid"; tw_code=$?; kill -0 "$tw_pid" 2>/dev/null || break; done
rm -f "$tw_up"
exit "$tw_code"
"""
