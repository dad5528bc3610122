#!/bin/bash
# A cluster-status script as workflow engines have it: running, success or failed.
set -euo pipefail
status() {
  state=$(sacct -j "$1" --format State --noheader | head -n 1 | awk '{print $1}')
  case $state in
    COMPLETED) echo success ;;
    ''|PENDING|CONFIGURING|COMPLETING|RUNNING|SUSPENDED) echo running ;;
    *) echo failed ;;
  esac
}
good=$(sbatch --parsable --wrap 'exit 0')
bad=$(sbatch --parsable --wrap 'exit 1')
while [ "$(status "$good")" = running ]; do sleep 0.5; done
while [ "$(status "$bad")" = running ]; do sleep 0.5; done
[ "$(status "$good")" = success ] && [ "$(status "$bad")" = failed ]
