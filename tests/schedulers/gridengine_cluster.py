"""A real Grid Engine of a node or two, in network namespaces of their own with nothing but loopback
and a cable between them.

Its files are copies below a scratch directory, so that nothing of the system's is touched; daemons
run in the foreground as children of the test. Needs root for the namespace.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.schedulers.slurm_cluster import PATHS, Children, until

ROOT = Path("/var/lib/gridengine")
SPOOL = Path("/var/spool/gridengine")
ADDRESS, SECOND = "10.99.0.1", "10.99.0.2"
NEEDED = {"/usr/sbin/sge_qmaster": "gridengine-master", "/usr/sbin/sge_execd": "gridengine-exec",
          "/usr/bin/qsub": "gridengine-client", "/sbin/ip": "iproute2"}  # fmt: skip
SLOTS = 64
ENVIRONMENTS = {"smp": "$pe_slots", "mpi": "$fill_up", "two": "2"}
ENVIRONMENT = {
    "slots": "999", "user_lists": "NONE", "xuser_lists": "NONE", "start_proc_args": "NONE",
    "stop_proc_args": "NONE", "control_slaves": "TRUE", "job_is_first_task": "TRUE",
    "urgency_slots": "min", "accounting_summary": "FALSE", "qsort_args": "NONE",
}  # fmt: skip


def missing() -> str:
    """Why there can be none here; empty if there can."""
    absent = sorted({package for tool, package in NEEDED.items() if not Path(tool).exists()})
    if absent:
        return f"needs {', '.join(absent)} (make services)"
    return "" if os.geteuid() == 0 else "needs root for a network namespace"


_started = itertools.count()


def descendants(pid: int) -> list[int]:
    """Of a process, those of its children included."""
    found = []
    for of in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in of.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


class GridEngine:
    """One cell: the master, and one or two execution hosts."""

    def __init__(self, hosts: int = 1) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="tw-sge-"))
        self.scratch.chmod(0o755)
        self.host = socket.gethostname().split(".")[0]
        self.netns = f"twsge{os.getpid()}-{next(_started)}"
        self.hosts = {self.host: (self.netns, ADDRESS)}
        if hosts > 1:
            self.hosts[f"{self.host}-b"] = (f"{self.netns}b", SECOND)
        self.children = Children(self.scratch)
        self.root = self.scratch / "root"

    @property
    def env(self) -> dict[str, str]:
        """What clients need."""
        return {"PATH": PATHS, "LANG": "C.UTF-8", "SGE_ROOT": str(self.root),
                "SGE_CELL": "default", "SGE_ND": "1", "HOME": "/root", "USER": "root",
                "LOGNAME": "root"}  # fmt: skip

    @property
    def inside(self) -> tuple[str, ...]:
        """The words before a client."""
        return ("ip", "netns", "exec", self.netns)

    def run(self, *argv: str, ok: bool = True) -> str:
        """A client's output."""
        done = subprocess.run(
            ["timeout", "15", *self.inside, *argv], env=self.env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=30, check=False,
        )  # fmt: skip
        assert not ok or done.returncode == 0, f"{argv}: {done.stderr} {done.stdout}"
        return done.stdout.strip()

    def start(self) -> GridEngine:
        """Up, with a queue that takes jobs; if not, nothing is left."""
        try:
            self._network()
            self._files()
            # Changing the user clears what lets it die with us, so that is said once more.
            user = ("setpriv", "--reuid", "sgeadmin", "--regid", "sgeadmin", "--clear-groups")
            self.children.start(
                "qmaster", *self.inside, *user, "--pdeathsig", "KILL", "--", "sge_qmaster",
                **self._daemon_env,
            )  # fmt: skip
            until(lambda: self.host in self.run("qconf", "-sh", ok=False), "the master answers")
            self._configure()
            for host in self.hosts:
                self.start_execd(host)
            until(self.takes_jobs, "the queue takes jobs")
        except BaseException:
            self.stop()
            raise
        return self

    def start_execd(self, host: str) -> None:
        """What runs jobs on a host, under that name."""
        named = ("unshare", "--uts", "sh", "-c", f"hostname {host}; exec sge_execd")
        words = ("ip", "netns", "exec", self.hosts[host][0], *named)
        self.children.start(f"execd-{host}", *words, **self._daemon_env)

    def kill_host(self, host: str, *, jobs: bool = True) -> None:
        """SIGKILL what Grid Engine runs on a host, as where it loses its power; or its daemon
        alone, whose jobs run on."""
        whole = descendants(self.children.pid(f"execd-{host}")) if jobs else []
        self.children.kill(f"execd-{host}")
        for pid in whole:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def give_up_hosts(self, unheard_s: int, ended_s: int) -> None:
        """How long after the last word of a host it is unknown, and after how much longer its jobs
        are ended; `ended_s` 0: never."""
        said = {"max_unheard": f"0:0:{unheard_s}", "reschedule_unknown": f"0:0:{ended_s}",
                "qmaster_params": "ENABLE_RESCHEDULE_KILL=true"}  # fmt: skip
        self.configure("global", self._changed("-sconf", "", said), "-Mconf")

    @property
    def _daemon_env(self) -> dict[str, str]:
        return {name: self.env[name] for name in ("SGE_ROOT", "SGE_CELL", "SGE_ND")}

    def takes_jobs(self) -> bool:
        """Whether every host does."""
        out = self.run("qstat", "-f", ok=False)
        lines = [line for line in out.splitlines() if line.startswith("main.q@")]
        ready = [line for line in lines if len(line.split()) == 5]  # noqa: PLR2004  no fault
        return len(ready) == len(self.hosts)

    def _network(self) -> None:
        known = "".join(f"{address} {host}\n" for host, (_, address) in self.hosts.items())
        steps: list[str] = []
        for netns, address in self.hosts.values():
            hosts = Path("/etc/netns") / netns
            hosts.mkdir(parents=True)
            (hosts / "hosts").write_text(f"{known}127.0.0.1 localhost\n")
            steps += [f"netns add {netns}", f"-n {netns} link set lo up",
                      f"-n {netns} addr add {address}/32 dev lo"]  # fmt: skip
        if len(self.hosts) > 1:
            (one, _), (other, _) = self.hosts.values()
            steps.append(f"-n {one} link add cable type veth peer name cable netns {other}")
            for netns, own, peer in ((one, ADDRESS, SECOND), (other, SECOND, ADDRESS)):
                steps += [f"-n {netns} link set cable up",
                          f"-n {netns} route add {peer} dev cable src {own}"]  # fmt: skip
        for step in steps:
            subprocess.run(["ip", *step.split()], check=True, timeout=10)

    def _files(self) -> None:
        shutil.copytree(ROOT, self.root, symlinks=True)
        spool = self.scratch / "spool"
        shutil.copytree(SPOOL, spool, symlinks=True)
        (spool / "execd").mkdir(exist_ok=True)
        common = self.root / "default/common"
        (common / "act_qmaster").write_text(f"{self.host}\n")
        bootstrap = (common / "bootstrap").read_text().replace(str(SPOOL), str(spool))
        (common / "bootstrap").write_text(bootstrap)
        for path in (self.root, spool):
            for each in (path, *path.rglob("*")):
                if not each.is_symlink():
                    shutil.chown(each, "sgeadmin", "sgeadmin")

    def _configure(self) -> None:
        self.run("qconf", "-am", "root", ok=False)
        self.run("qconf", "-as", self.host)
        for host in self.hosts:
            self.run("qconf", "-ah", host, ok=False)
        complexes = self.run("qconf", "-sc")
        self.configure("complexes", f"{complexes}\ngpu gpu INT <= YES YES 0 0\n", "-Mc")
        every = " ".join(self.hosts)
        self.configure("hosts", f"group_name @allhosts\nhostlist {every}\n", "-Ahgrp")
        none = ("load_scaling", "user_lists", "xuser_lists", "projects", "xprojects",
                "usage_scaling", "report_variables")  # fmt: skip
        for name in self.hosts:
            host = [f"hostname {name}", "complex_values gpu=8", *(f"{n} NONE" for n in none)]
            self.configure("host", "\n".join(host) + "\n", "-Me")
        for name, rule in ENVIRONMENTS.items():
            said = {"pe_name": name, "allocation_rule": rule, **ENVIRONMENT}
            self.configure("pe", "".join(f"{k} {v}\n" for k, v in said.items()), "-Ap")
        queue = {
            "qname": "main.q", "hostlist": "@allhosts", "slots": str(SLOTS), "shell": "/bin/sh",
            "load_thresholds": "NONE", "pe_list": " ".join(ENVIRONMENTS), "ckpt_list": "NONE",
            "shell_start_mode": "unix_behavior", "notify": "00:00:05",
        }  # fmt: skip
        self.configure("queue", self._changed("-sq", "", queue), "-Aq")
        quick = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1",
                 "job_load_adjustments": "NONE"}  # fmt: skip
        self.configure("scheduler", self._changed("-ssconf", "", quick), "-Msconf")
        spool = f"{self.scratch}/spool/execd"
        whole = {"min_uid": "0", "min_gid": "0", "gid_range": "20000-20200",
                 "execd_params": "none", "load_report_time": "0:0:1", "mailer": "/bin/true",
                 "reporting_params": "accounting=true reporting=false flush_time=00:00:01 "
                 "joblog=false sharelog=00:00:00 accounting_flush_time=00:00:00",
                 "execd_spool_dir": spool}  # fmt: skip
        self.configure("global", self._changed("-sconf", "", whole), "-Mconf")

    def _changed(self, show: str, of: str, said: dict[str, str]) -> str:
        """A configuration as qconf shows it, with some lines said otherwise."""
        lines = []
        for line in self.run("qconf", show, *([of] if of else [])).splitlines():
            name = line.split(" ", 1)[0]
            lines.append(f"{name} {said[name]}" if name in said else line)
        return "\n".join(lines) + "\n"

    def configure(self, name: str, text: str, how: str) -> None:
        """Hand `qconf` a file that says it."""
        path = self.scratch / name
        path.write_text(text)
        self.run("qconf", how, str(path))

    def stop(self) -> None:
        """End everything and remove every trace."""
        self.children.stop()
        for netns, _ in self.hosts.values():
            pids = subprocess.run(
                ["ip", "netns", "pids", netns], capture_output=True, text=True, check=False
            ).stdout.split()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", netns], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / netns, ignore_errors=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
