#!/usr/bin/env python3
"""A regular expression over the answer of sbatch; squeue's compact state until it is empty."""
import re
import subprocess
import time
from pathlib import Path

Path("job.sh").write_text("#!/bin/sh\n#SBATCH -o out-%j.txt\necho from python\n")
said = subprocess.run(["sbatch", "job.sh"], check=True, capture_output=True, text=True).stdout
job = re.search(r"Submitted batch job (\d+)", said).group(1)
while True:
    command = ["squeue", "-h", "-j", job, "-o", "%t"]
    state = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if state not in ("PD", "R", "CF", "CG"):
        break
    time.sleep(0.5)
assert Path(f"out-{job}.txt").read_text() == "from python\n"
