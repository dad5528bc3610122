"""The columns of sacct."""

from __future__ import annotations

import os
from dataclasses import dataclass

from broker.cli.shims.columns import Field
from broker.cli.shims.rows import Row, clock, long_clock


@dataclass(frozen=True, slots=True)
class Line:
    """A job, or the batch step in it."""

    row: Row
    step: str = ""

    @property
    def id(self) -> str:
        """`123`, `123.batch`, `123_[0-9]`."""
        return f"{self.row.id}{self.step}"

    @property
    def state(self) -> str:
        """With the user who stopped it, as sacct has it."""
        if self.row.state == "CANCELLED" and not self.step:
            return f"CANCELLED by {os.getuid()}"
        return self.row.state


def _allocated(line: Line) -> str:
    return str(line.row.cpus) if line.row.at_s("started_at") else "0"


def _main(value: str, line: Line) -> str:
    return "" if line.step else value


FIELDS: dict[str, Field[Line]] = {
    "jobid": Field("JobID", lambda x: x.id, 12),
    "jobidraw": Field("JobIDRaw", lambda x: f"{x.row.number}{x.step}", 12),
    "jobname": Field("JobName", lambda x: "batch" if x.step else x.row.name),
    "partition": Field("Partition", lambda x: _main(x.row.partition, x)),
    "account": Field(
        "Account", lambda x: x.row.label("slurm-account") or str(x.row.job.get("tenant"))
    ),
    "alloccpus": Field("AllocCPUS", _allocated),
    "ncpus": Field("NCPUS", _allocated),
    "reqcpus": Field("ReqCPUS", lambda x: str(x.row.cpus), 8),
    "state": Field("State", lambda x: x.state),
    "exitcode": Field("ExitCode", lambda x: x.row.exit_code, 8),
    "derivedexitcode": Field("DerivedExitCode", lambda x: _main(x.row.exit_code, x), 15),
    "elapsed": Field("Elapsed", lambda x: long_clock(x.row.elapsed_s)),
    "elapsedraw": Field("ElapsedRaw", lambda x: str(x.row.elapsed_s)),
    "cputimeraw": Field("CPUTimeRAW", lambda x: str(x.row.elapsed_s * x.row.cpus)),
    "cputime": Field("CPUTime", lambda x: long_clock(x.row.elapsed_s * x.row.cpus)),
    "totalcpu": Field("TotalCPU", lambda x: ""),
    "usercpu": Field("UserCPU", lambda x: ""),
    "systemcpu": Field("SystemCPU", lambda x: ""),
    "start": Field("Start", lambda x: x.row.time("started_at"), 19),
    "end": Field("End", lambda x: x.row.time("ended_at"), 19),
    "submit": Field("Submit", lambda x: x.row.time("created_at"), 19),
    "eligible": Field("Eligible", lambda x: x.row.time("created_at"), 19),
    "timelimit": Field("Timelimit", lambda x: _main(clock(x.row.limit_s), x)),
    "timelimitraw": Field("TimelimitRaw", lambda x: _main(str((x.row.limit_s or 0) // 60), x)),
    "nodelist": Field("NodeList", lambda x: x.row.cluster or "None assigned", 15),
    "nnodes": Field("NNodes", lambda x: str(x.row.nodes), 8),
    "allocnodes": Field("AllocNodes", lambda x: str(x.row.nodes)),
    "user": Field("User", lambda x: _main(x.row.user, x), 9),
    "uid": Field("UID", lambda x: _main(str(os.getuid()), x), 6),
    "group": Field("Group", lambda x: _main(x.row.user, x), 9),
    "cluster": Field("Cluster", lambda x: x.row.cluster or "tradewind"),
    "qos": Field("QOS", lambda x: _main(x.row.label("slurm-qos") or "normal", x)),
    "reqmem": Field("ReqMem", lambda x: f"{x.row.memory_mib}M"),
    "maxrss": Field("MaxRSS", lambda x: ""),
    "averss": Field("AveRSS", lambda x: ""),
    "maxvmsize": Field("MaxVMSize", lambda x: ""),
    "avevmsize": Field("AveVMSize", lambda x: ""),
    "maxdiskread": Field("MaxDiskRead", lambda x: "", 12),
    "maxdiskwrite": Field("MaxDiskWrite", lambda x: "", 12),
    "ntasks": Field("NTasks", lambda x: "1" if x.step else "", 8),
    "priority": Field("Priority", lambda x: _main(str(x.row.job.get("priority", 0)), x)),
    "reason": Field("Reason", lambda x: _main(x.row.reason, x), 22),
    "comment": Field("Comment", lambda x: _main(x.row.label("slurm-comment"), x), 14),
    "workdir": Field("WorkDir", lambda x: "", 20),
    "reqtres": Field("ReqTRES", lambda x: f"cpu={x.row.cpus}"),
    "alloctres": Field("AllocTRES", lambda x: f"cpu={x.row.cpus}"),
    "reqgres": Field("ReqGRES", lambda x: ""),
    "consumedenergy": Field("ConsumedEnergy", lambda x: "", 14),
    "wckey": Field("WCKey", lambda x: ""),
    "submitline": Field("SubmitLine", lambda x: "", 20),
    "suspended": Field("Suspended", lambda x: "00:00:00"),
    "reservation": Field("Reservation", lambda x: "", 20),
    "planned": Field("Planned", lambda x: ""),
}
