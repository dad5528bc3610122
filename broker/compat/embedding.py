"""Putting a script into another script, unchanged: shell text that writes files and runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

# A directory of the job's own for what is written, apart for every task and rank.
PLACE = """\
tw_home=$PWD
tw_dir=$tw_home/.tradewind/${TRADEWIND_ATTEMPT:-attempt}.${TRADEWIND_TASK:-0}.${TRADEWIND_RANK:-0}
mkdir -p "$tw_dir" 2>/dev/null || tw_dir=$(mktemp -d) || exit 125
"""

# The integer this job is known by: TW_INTEGER_ID as its submitter chose it, else derived from the
# job's id as `broker.compat.integer_ids.derived` does it.
NUMBER = """\
tw_number=${TW_INTEGER_ID:-}
[ -n "$tw_number" ] || {
  tw_number=$(printf %s "${TRADEWIND_JOB:-}" | cksum | cut -d' ' -f1)
  tw_number=$((10000000 + tw_number % 2000000000))
}
"""


def write_file(name: str, text: str) -> str:
    """Shell text that writes `text` to the executable file `name` in the job's place.

    A here document ends its text with a line break; nothing else of it is changed.
    """
    end = "TRADEWIND_END"
    while re.search(rf"^{end}$", text, re.MULTILINE):
        end += "_"
    body = text if text.endswith("\n") else f"{text}\n"
    return f"cat > \"$tw_dir/{name}\" <<'{end}' || exit 125\n{body}{end}\n" \
           f'chmod +x "$tw_dir/{name}" || exit 125\n'  # fmt: skip


def run_file(name: str, arguments: Sequence[str] = (), stdin: str = "/dev/null") -> str:
    """Shell text that becomes the file `name`, run with `arguments`."""
    words = "".join(f" {shlex.quote(word)}" for word in arguments)
    source = stdin if stdin == "/dev/null" else shlex.quote(stdin)
    return f'exec "$tw_dir/{name}"{words} < {source}\n'


def export(name: str, value: str) -> str:
    """Shell text that sets a variable to exactly `value`."""
    return f"export {name}={shlex.quote(value)}\n"


def change_directory(path: str) -> str:
    """Shell text that goes to `path`, or ends the job saying that it is not there."""
    quoted = shlex.quote(path)
    missing = shlex.quote(f"tradewind: no directory {path} at this site")
    return f"cd {quoted} || {{ echo {missing} >&2; exit 125; }}\n"
