#!/usr/bin/env python3
"""The number out of `Your job 12 ("x") has been submitted`; qstat's first column."""
import re
import subprocess
import time

said = subprocess.check_output(["qsub", "-cwd", "-N", "cols", "-b", "y", "sleep", "1"], text=True)
number = re.match(r'Your job (\d+) \("cols"\) has been submitted', said).group(1)
while True:
    lines = subprocess.check_output(["qstat"], text=True).splitlines()[2:]
    states = {line.split()[0]: line.split()[4] for line in lines}
    if number not in states:
        break
    assert states[number] in ("qw", "t", "r"), states
    time.sleep(0.5)
