#!/usr/bin/env python3
"""A job that fails: its exit code from sacct."""
import subprocess
import time

number = subprocess.check_output(["sbatch", "--parsable", "--wrap", "exit 42"], text=True).strip()
for _ in range(60):
    command = ["sacct", "-n", "-X", "-P", "-j", number, "--format=State,ExitCode"]
    line = subprocess.check_output(command, text=True).strip()
    if line and line.split("|")[0] not in ("PENDING", "RUNNING"):
        break
    time.sleep(0.5)
assert line == "FAILED|42:0", line
