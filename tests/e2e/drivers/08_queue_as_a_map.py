#!/usr/bin/env python3
"""As pipeline engines do it: the whole queue of a user as a map from id to state."""
import getpass
import subprocess
import time
from pathlib import Path

Path(".command.run").write_text(
    "#!/bin/bash\n#SBATCH -J nf-task\n#SBATCH -o .command.log\n#SBATCH --no-requeue\n"
    "#SBATCH -t 00:10:00\necho working\nsleep 0.5\n"
)
job = subprocess.run(["sbatch", ".command.run"], check=True, capture_output=True, text=True)
number = job.stdout.split()[-1]


def queue() -> dict[str, str]:
    command = ["squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", getpass.getuser()]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(line.split() for line in lines if line.strip())


while queue().get(number) in ("PD", "R", "CF", "CG", "S"):
    time.sleep(0.5)
assert queue()[number] == "CD", queue()
assert Path(".command.log").read_text() == "working\n"
