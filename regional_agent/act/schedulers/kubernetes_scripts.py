"""What of a job's script is Kubernetes' own: plain POSIX shell, for any image."""

HEADER = r"""TW_LOCAL=$TW_POD
TW_INDEX=${JOB_COMPLETION_INDEX:+$((JOB_COMPLETION_INDEX + ${TW_OFFSET:-0}))}
if [ -n "$TW_SERVICE" ]; then
  TW_RANK=$JOB_COMPLETION_INDEX TW_LOCAL_RANK=0 TW_PORT=29500
  TW_HEAD=${TW_FIRST_HOST:-$TW_SERVICE-0}.$TW_SERVICE
  export TW_RANK TW_LOCAL_RANK TW_HEAD TW_PORT
  if [ "$TW_RANK" != 0 ]; then
    TW_MEMBER=rank.$TW_RANK
    [ "$TW_MAX_S" = 0 ] || TW_MAX_S=$((TW_MAX_S + TW_GRACE_S + 10))
    (while [ ! -e "$TW_DIR/marks/stop" ]; do sleep 0.5; done; kill -TERM $$) >/dev/null 2>&1 &
  fi
fi
"""
"""The ranks of a gang are pods. That of rank 0 speaks for the task; others have claims and marks
of their own, stop when it says so, and by themselves only after it had to."""
LAUNCHER = (
    """/bin/sh -c 'trap tw_s=1 TERM; "$@" & tw_p=$!; """
    """while :; do wait $tw_p; tw_c=$?; kill -0 $tw_p 2>/dev/null || break; done; tw_r=1; """
    """while [ $TW_RANK = 0 ] && [ $tw_r -lt @RANKS@ ]; do """
    """[ $tw_c = 0 ] || : > "$0/marks/stop"; """
    """if read -r tw_x tw_m tw_y < "$0/marks/rank.$tw_r"; then """
    """tw_r=$((tw_r + 1)); [ $tw_c != 0 ] || tw_c=$tw_m; """
    """elif [ "$tw_s$tw_c" != 0 ] && [ ! -e "$0/claims/rank.$tw_r" ]; then tw_r=$((tw_r + 1)); """
    """else sleep 0.2; fi; done 2>/dev/null; """
    """[ -z "$tw_s" ] || [ $tw_c != 0 ] || tw_c=143; exit $tw_c' "$TW_DIR" """
)
"""Rank 0 ends after all that have begun, also where it has them stop, and by the first that failed;
but not later than its grace."""
