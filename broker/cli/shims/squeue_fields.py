"""The columns of squeue, by letter and by name."""

from __future__ import annotations

from broker.cli.shims.columns import Field
from broker.cli.shims.rows import SHORT, Row, clock


def _place(row: Row) -> str:
    return row.cluster if row.state == "RUNNING" else ""


def _left(row: Row) -> str:
    limit = row.limit_s
    return "UNLIMITED" if limit is None else clock(max(limit - row.elapsed_s, 0))


def _account(row: Row) -> str:
    return row.label("slurm-account") or str(row.job.get("tenant"))


def _end(row: Row) -> str:
    return row.time("ended_at", "N/A")


FIELDS: dict[str, Field[Row]] = {
    "i": Field("JOBID", lambda r: r.id),
    "A": Field("JOBID", lambda r: str(r.number)),
    "F": Field("ARRAY_JOB_ID", lambda r: str(r.number)),
    "K": Field("ARRAY_TASK_ID", lambda r: r.tasks or "N/A"),
    "P": Field("PARTITION", lambda r: r.partition),
    "j": Field("NAME", lambda r: r.name),
    "u": Field("USER", lambda r: r.user),
    "U": Field("USER", lambda r: r.user),
    "t": Field("ST", lambda r: SHORT.get(r.state, "PD")),
    "T": Field("STATE", lambda r: r.state),
    "M": Field("TIME", lambda r: clock(r.elapsed_s)),
    "l": Field("TIME_LIMIT", lambda r: clock(r.limit_s)),
    "L": Field("TIME_LEFT", _left),
    "D": Field("NODES", lambda r: str(r.nodes)),
    "C": Field("CPUS", lambda r: str(r.cpus)),
    "m": Field("MIN_MEMORY", lambda r: f"{r.memory_mib}M"),
    "c": Field("MIN_CPUS", lambda r: str(max(r.cpus // r.nodes, 1))),
    "R": Field("NODELIST(REASON)", lambda r: _place(r) or f"({r.reason})"),
    "N": Field("NODELIST", _place),
    "B": Field("EXEC_HOST", lambda r: _place(r) or "n/a"),
    "r": Field("REASON", lambda r: r.reason),
    "a": Field("ACCOUNT", _account),
    "q": Field("QOS", lambda r: r.label("slurm-qos") or "normal"),
    "Q": Field("PRIORITY", lambda r: str(r.job.get("priority", 0))),
    "p": Field("PRIORITY", lambda r: f"{int(r.job.get('priority', 0)) / 1000:.8f}"),
    "S": Field("START_TIME", lambda r: r.time("started_at", "N/A")),
    "e": Field("END_TIME", _end),
    "V": Field("SUBMIT_TIME", lambda r: r.time("created_at")),
    "k": Field("COMMENT", lambda r: r.label("slurm-comment") or "(null)"),
    "E": Field("DEPENDENCY", lambda r: "(null)"),
    "f": Field("FEATURES", lambda r: "(null)"),
    "h": Field("OVER_SUBSCRIBE", lambda r: "OK"),
    "n": Field("REQ_NODES", lambda r: ""),
    "Y": Field("SCHEDNODES", lambda r: "(null)"),
    "Z": Field("WORK_DIR", lambda r: "."),
    "o": Field("COMMAND", lambda r: r.name),
    "g": Field("GROUP", lambda r: r.user),
    "G": Field("GROUP", lambda r: r.user),
    "x": Field("EXC_NODES", lambda r: ""),
    "v": Field("RESERVATION", lambda r: "(null)"),
    "b": Field("TRES_PER_NODE", lambda r: "N/A"),
    "d": Field("MIN_TMP_DISK", lambda r: "0"),
    "w": Field("WCKEY", lambda r: "(null)"),
    "y": Field("NICE", lambda r: "0"),
    "s": Field("SELECT_JOBINFO", lambda r: "N/A"),
    "I": Field("CORES_PER_SOCKET", lambda r: "*"),
    "H": Field("SOCKETS_PER_NODE", lambda r: "*"),
    "J": Field("THREADS_PER_CORE", lambda r: "*"),
    "X": Field("CORE_SPEC", lambda r: "N/A"),
    "z": Field("S:C:T", lambda r: "*:*:*"),
    "W": Field("LICENSES", lambda r: "(null)"),
}
_BY_NAME = {
    "jobid": "A",
    "jobarrayid": "i",
    "arrayjobid": "F",
    "arraytaskid": "K",
    "partition": "P",
    "name": "j",
    "jobname": "j",
    "username": "u",
    "userid": "U",
    "state": "T",
    "statecompact": "t",
    "timeused": "M",
    "timelimit": "l",
    "timeleft": "L",
    "numnodes": "D",
    "numcpus": "C",
    "minmemory": "m",
    "mincpus": "c",
    "reasonlist": "R",
    "nodelist": "N",
    "batchhost": "B",
    "reason": "r",
    "account": "a",
    "qos": "q",
    "prioritylong": "Q",
    "priority": "p",
    "starttime": "S",
    "endtime": "e",
    "submittime": "V",
    "comment": "k",
    "dependency": "E",
    "feature": "f",
    "workdir": "Z",
    "command": "o",
    "nice": "y",
    "wckey": "w",
    "reservation": "v",
    "tres-per-node": "b",
    "oversubscribe": "h",
}
NAMED = {
    name: Field(FIELDS[letter].title, FIELDS[letter].value, 20)
    for name, letter in _BY_NAME.items()
}
