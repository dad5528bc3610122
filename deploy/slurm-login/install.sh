#!/bin/sh
# An agent on a login node, for an ordinary user: no root, no daemon, no inbound port.
#
#   install.sh --join 'tradewind-agent join https://... --token ... --ca-hash ...' [options]
#
#   --join COMMAND   what `tradewind clusters invite` printed; left out: the agent has joined already
#   --package WHAT   what pip installs (default: the checkout this kit lies in, else tradewind[agent])
#   --agent PATH     an agent that is installed already; then nothing is installed
#   --proxy URL      HTTP proxy to go out through
#   --no-cron        write no line into the crontab; print it
#
# May be run again at any time: what is done already is left alone.
set -eu

checkout=$(cd "$(dirname "$0")/../.." && pwd)
package='tradewind[agent]'
[ ! -e "$checkout/pyproject.toml" ] || package="$checkout[agent]"
join= agent= proxy= cron=yes
while [ $# -gt 0 ]; do
    case $1 in
        --join) join=$2; shift ;;
        --package) package=$2; shift ;;
        --agent) agent=$2; shift ;;
        --proxy) proxy=$2; shift ;;
        --no-cron) cron= ;;
        *) sed -n '2,13p' "$0" >&2; exit 2 ;;
    esac
    shift
done

say() { echo "install.sh: $*"; }
die() { echo "install.sh: $*" >&2; exit 1; }

[ "$(id -u)" != 0 ] || die "run it as the user whose jobs the agent submits, not as root"
state=${TRADEWIND_AGENT_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/tradewind-agent}
umask 077

if [ -z "$agent" ]; then
    home=$HOME/.local/share/tradewind
    agent=$home/bin/tradewind-agent
    if [ ! -x "$agent" ]; then
        python=
        for each in python3.13 python3.12 python3.11 python3; do
            if "$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
                python=$each
                break
            fi
        done
        [ -n "$python" ] || die "no Python 3.11 or newer on PATH; try: module load python"
        "$python" -m venv "$home"
        "$home/bin/python" -m pip install --quiet ${proxy:+--proxy "$proxy"} "$package"
        say "installed $package in $home"
    fi
fi
[ -x "$agent" ] || die "$agent cannot be run"

mkdir -p "$state"
chmod 700 "$state"
if [ ! -e "$state/agent.yaml" ]; then
    cp "$(dirname "$0")/agent.yaml" "$state/agent.yaml"
    say "wrote $state/agent.yaml: look it over"
fi
if [ ! -e "$state/site.yaml" ]; then
    cp "$(dirname "$0")/site.yaml" "$state/site.yaml"
    say "wrote $state/site.yaml: what the federation may do here"
fi

if [ ! -d "$state/identity" ]; then
    [ -n "$join" ] || die "not joined yet: give --join with what \`tradewind clusters invite\` printed"
    set -- $join
    [ "$1 ${2:-}" = "tradewind-agent join" ] || die "--join begins with: tradewind-agent join"
    shift 2
    "$agent" join "$@" --state-dir "$state" ${proxy:+--proxy "$proxy"}
fi

"$agent" ensure --state-dir "$state"

line="*/5 * * * * $agent ensure --state-dir $state >/dev/null 2>>$state/ensure.log"
if [ -n "$cron" ] && command -v crontab >/dev/null; then
    if crontab -l 2>/dev/null | grep -qF "$agent ensure --state-dir $state"; then
        say "the crontab has its line"
    else
        { crontab -l 2>/dev/null || true; echo "$line"; } | crontab -
        say "the crontab starts it again when the node was restarted"
    fi
else
    say "to have it started again when the node was restarted, put this into a crontab:"
    echo "$line"
fi
