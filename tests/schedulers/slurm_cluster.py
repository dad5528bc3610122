"""Real Slurm clusters on loopback: each with a controller and several nodes whose cards are device
files, one accounting daemon over a database for all of them.

Everything is a child of the test and lives below one scratch directory; what this process does
not end dies with it. Needs root, because Slurm's daemons run as users of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

NEEDED = {
    "slurmctld": "slurmctld", "slurmd": "slurmd", "slurmdbd": "slurmdbd", "sbatch": "slurm-client",
    "munged": "munge", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server",
    "setpriv": "util-linux",
}  # fmt: skip
UP_WITHIN_S = 40.0
CLIENT_S = 20.0
CARDS = 8
PATHS = "/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str:
    """Why no cluster can be had here; empty if one can."""
    absent = sorted({p for tool, p in NEEDED.items() if shutil.which(tool, path=PATHS) is None})
    if absent:
        return f"needs {', '.join(absent)} (make services)"
    return "" if os.geteuid() == 0 else "needs root for the daemons of Slurm"


def rest_missing() -> str:
    """Why slurmrestd cannot be had here; empty if it can."""
    there = shutil.which("slurmrestd", path=PATHS)
    return missing() or ("" if there else "needs slurmrestd (make services)")


def until(holds: Callable[[], Any], what: str, within_s: float = UP_WITHIN_S) -> Any:
    """Wait for something; fails with `what`."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s:g} s: {what}")


def _free_ports(count: int) -> int:
    """The first of so many neighbouring ports that are free now."""
    for base in range(21000 + os.getpid() % 8000, 60000, count):
        probes = []
        try:
            for port in range(base, base + count):
                probes.append(socket.create_server(("127.0.0.1", port)))
            return base
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free ports")


class Children:
    """Daemons in the foreground, ended in reverse order."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, *argv: object, user: str = "", **env: str) -> int:
        """Start one; its output goes to `<name>.out`. Returns its pid. Call it from the main
        thread: a child dies with the thread that started it."""
        out = (self._scratch / f"{name}.out").open("ab")
        head = ["setpriv", "--pdeathsig", "KILL"]
        if user:
            head += ["--reuid", user, "--regid", user, "--clear-groups"]
        child = subprocess.Popen(
            [*head, "--", *map(str, argv)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={"PATH": PATHS, "LANG": "C.UTF-8", **env}, start_new_session=True,
        )  # fmt: skip
        out.close()
        self._running.append((name, child))
        return child.pid

    def kill(self, name: str) -> None:
        """SIGKILL one, as a machine that loses its power."""
        for known, child in self._running:
            if known == name:
                child.kill()
                child.wait(10)
        self._running = [(known, c) for known, c in self._running if known != name]

    def pid(self, name: str) -> int:
        """Of one that runs."""
        return next(child.pid for known, child in self._running if known == name)

    def runs(self, name: str) -> bool:
        """Whether it does."""
        return any(known == name and c.poll() is None for known, c in self._running)

    def stop(self) -> None:
        """End all of them."""
        for _, child in reversed(self._running):
            child.terminate()
        end_s = time.monotonic() + 3
        for _, child in reversed(self._running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.05, end_s - time.monotonic()))
            child.kill()
            child.wait(10)
        self._running.clear()


class SlurmCluster:
    """One controller and its nodes."""

    def __init__(self, site: SlurmSite, name: str, nodes: int, port: int) -> None:
        self.site, self.name, self.port = site, name, port
        self.nodes = [f"{name}-n{n}" for n in range(1, nodes + 1)]
        self.root = site.scratch / name
        self.conf = self.root / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """What clients of this cluster need."""
        return {"PATH": PATHS, "SLURM_CONF": str(self.conf), "LANG": "C.UTF-8"}

    def run(self, *argv: str, ok: bool = True, within_s: float = CLIENT_S) -> str:
        """A client's output."""
        done = subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=within_s,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert not ok or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout.strip()

    def copies(self) -> Counter[str]:
        """How many jobs of Slurm each attempt was that ever began, by Slurm's own books; an
        array of one attempt is one. Needs job_comment in `AccountingStoreFlags`."""
        out = self.run("sacct", "-a", "-X", "-n", "-P", "-o", "JobID,State,JobName,Comment")
        found: set[tuple[str, str]] = set()
        for line in out.splitlines():
            job, state, name, comment = line.split("|", 3)
            array, _, index = job.partition("_")
            pack = comment.split(":")[3:]
            if state != "PENDING" and index.isdigit() and pack:
                found.add((pack[0].split(",")[int(index)], job))
            elif state != "PENDING" and not pack:
                found.add((name, array))
        return Counter(attempt for attempt, _ in found)

    def write(self) -> None:
        """Its files."""
        for part in ("state", "log", "run", "spool"):
            (self.root / part).mkdir(parents=True)
        for part in ("state", "log"):
            shutil.chown(self.root / part, "slurm", "slurm")
        for node in self.nodes:
            (self.root / "spool" / node).mkdir()
        self.conf.write_text(self._conf())
        if self.site.topology:
            (self.root / "topology.conf").write_text(self.site.topology)
        cards = f"{self.site.scratch}/dev/gpu[0-{CARDS - 1}]"
        (self.root / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={self.name}-n[1-{len(self.nodes)}] Name=gpu Type=h100 "
            f"File={cards}\n"
        )

    def _conf(self) -> str:
        root, munge = self.root, self.site.munge_socket
        host = socket.gethostname().split(".")[0]
        said = {
            "ClusterName": self.name,
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": self.port,
            "SlurmUser": "slurm",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "CryptoType": "crypto/munge",
            "AuthInfo": f"socket={munge}",
            "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
            "StateSaveLocation": root / "state",
            "SlurmdSpoolDir": f"{root}/spool/%n",
            "SlurmctldPidFile": root / "run/slurmctld.pid",
            "SlurmdPidFile": f"{root}/run/slurmd-%n.pid",
            "SlurmctldLogFile": root / "log/slurmctld.log",
            "SlurmdLogFile": f"{root}/log/slurmd-%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "sched_interval=1,bf_interval=1,batch_sched_delay=0,"
            "sched_min_interval=0",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "SlurmdParameters": "config_overrides",
            "DebugFlags": "NO_CONF_HASH",
            "GresTypes": "gpu",
            "DefMemPerCPU": 100,
            "MailProg": "/bin/true",
            "JobAcctGatherType": "jobacct_gather/linux",
            "JobAcctGatherFrequency": "task=1",
            "JobAcctGatherParams": "OverMemoryKill",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": root / "log/jobcomp.txt",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "MinJobAge": 10,
            "KillWait": 2,
            "SlurmdTimeout": 30,
            "InactiveLimit": 0,
        }
        if self.site.accounting:
            said |= {
                "AccountingStorageType": "accounting_storage/slurmdbd",
                "AccountingStorageHost": "127.0.0.1",
                "AccountingStoragePort": self.site.dbd_port,
                "AccountingStoragePass": munge,
                "AccountingStorageTRES": "gres/gpu",
                "AccountingStoreFlags": "job_comment",
            }
        if self.site.topology:
            said["TopologyPlugin"] = "topology/tree"
        said |= self.site.options
        lines = [f"{key}={value}" for key, value in said.items()]
        for n, node in enumerate(self.nodes, 1):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + n} "
                f"CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 "
                f"RealMemory=512000 Gres=gpu:h100:{CARDS} State=UNKNOWN"
                + "".join(f" Feature={text}" for text in self.site.features[n - 1 : n])
            )
        lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=12:00:00 PriorityTier=1")
        lines.append("PartitionName=urgent Nodes=ALL MaxTime=1:00:00 PriorityTier=10")
        return "\n".join(lines) + "\n"

    def start(self) -> None:
        """Controller and nodes."""
        self.start_controller("-c")
        for node in self.nodes:
            self.start_node(node)

    def start_controller(self, *arguments: str) -> None:
        """The controller, over what it has on disk unless `-c`."""
        self.site.children.start(
            f"{self.name}-ctld", "slurmctld", "-D", "-i", "-f", self.conf, *arguments,
            SLURM_CONF=str(self.conf), user="slurm",
        )  # fmt: skip

    @property
    def rest_socket(self) -> Path:
        """Where slurmrestd listens."""
        return self.root / "run/rest.sock"

    def start_rest(self) -> str:
        """slurmrestd on a socket of its own, which takes whoever it runs as; its address."""
        self.site.children.start(
            f"{self.name}-rest", "slurmrestd", "-f", self.conf, "-a", "rest_auth/local",
            "-s", "openapi/v0.0.38", f"unix:{self.rest_socket}",
            SLURM_CONF=str(self.conf), SLURMRESTD_SECURITY="disable_user_check",
        )  # fmt: skip
        until(self.rest_socket.exists, "the socket of slurmrestd")
        return f"unix:{self.rest_socket}"

    def kill_controller(self) -> None:
        """As by a loss of power."""
        self.site.children.kill(f"{self.name}-ctld")

    def start_node(self, node: str) -> None:
        """One node."""
        self.site.children.start(
            node, "slurmd", "-D", "-f", self.conf, "-N", node, SLURM_CONF=str(self.conf)
        )

    def kill_node(self, node: str) -> None:
        """The daemon of a node and every job on it; whoever could tell of their end goes first."""
        self.site.children.kill(node)
        jobs = _of_environment(f"SLURMD_NODENAME={node}")
        for pid in (*dict.fromkeys(filter(None, map(_step_of, jobs))), *jobs):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ready(self) -> bool:
        """Whether all nodes are idle."""
        states = self.run("timeout", "5", "sinfo", "-h", "-N", "-p", "main", "-o", "%T", ok=False)
        return states.split().count("idle") == len(self.nodes)


class SlurmSite:
    """Several independent clusters with what they share: munge, and the accounting daemon."""

    def __init__(
        self,
        names: Sequence[str],
        nodes: int = 4,
        *,
        accounting: bool = True,
        options: Mapping[str, object] | None = None,
        features: Sequence[str] = (),
        topology: str = "",
    ) -> None:
        """`features`: of the nodes by their order, as `ib,icelake`; `topology`: a topology.conf."""
        self.scratch = Path(tempfile.mkdtemp(prefix="tw-slurm-"))
        self.scratch.chmod(0o755)
        self.accounting = accounting
        self.options = dict(options or {})
        self.features, self.topology = features, topology
        self.children = Children(self.scratch)
        self.munge_socket = self.scratch / "munge/munge.socket.2"
        base = _free_ports(10 + len(names) * (nodes + 2))
        self.sql_port, self.dbd_port = base, base + 1
        self.clusters = {
            name: SlurmCluster(self, name, nodes, base + 10 + n * (nodes + 2))
            for n, name in enumerate(names)
        }

    def start(self) -> SlurmSite:
        """Everything up and idle; if not, nothing is left."""
        try:
            self._munge()
            (self.scratch / "dev").mkdir()
            for card in range(CARDS):  # stands for a card: a character device
                os.mknod(self.scratch / f"dev/gpu{card}", 0o666 | 0o020000, os.makedev(1, 3))
            for cluster in self.clusters.values():
                cluster.write()
            if self.accounting:
                self._database()
            for cluster in self.clusters.values():
                cluster.start()
            for cluster in self.clusters.values():
                until(cluster.ready, f"nodes of {cluster.name} idle; see {cluster.root}/log")
        except BaseException:
            self.stop()
            raise
        return self

    def _munge(self) -> None:
        root = self.scratch / "munge"
        root.mkdir(mode=0o755)
        (root / "munge.key").write_bytes(os.urandom(1024))
        for path in (root, root / "munge.key"):
            shutil.chown(path, "munge", "munge")
        (root / "munge.key").chmod(0o400)
        names = {"key-file": "munge.key", "socket": "munge.socket.2", "pid-file": "pid",
                 "log-file": "log", "seed-file": "seed"}  # fmt: skip
        flags = [f"--{flag}={root / name}" for flag, name in names.items()]
        self.children.start("munged", "munged", "-F", "--num-threads=4", *flags, user="munge")
        until(self.munge_socket.exists, "the socket of munged")

    def _database(self) -> None:
        root = self.scratch / "mysql"
        root.mkdir()
        shutil.chown(root, "mysql", "mysql")
        where = (f"--datadir={root}/data", "--user=mysql")
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", *where, "--skip-test-db",
             "--auth-root-authentication-method=socket"],
            check=True, timeout=60, capture_output=True, env={"PATH": PATHS},
        )  # fmt: skip
        self.children.start(
            "mariadbd", "mariadbd", "--no-defaults", *where, f"--socket={root}/s.sock",
            f"--pid-file={root}/pid", "--bind-address=127.0.0.1", f"--port={self.sql_port}",
            "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        until(lambda: self._sql("select 1"), "the database")
        assert self._sql(
            "create database slurm_acct; create user slurm@'127.0.0.1' identified by 'local';"
            "grant all on slurm_acct.* to slurm@'127.0.0.1';"
        )
        self._accounting()

    def _sql(self, text: str) -> bool:
        argv = ["mariadb", "--no-defaults", f"--socket={self.scratch}/mysql/s.sock", "-e", text]
        done = subprocess.run(argv, capture_output=True, timeout=20, check=False)
        return done.returncode == 0

    def _accounting(self) -> None:
        root = self.scratch / "dbd"
        root.mkdir()
        conf = root / "slurmdbd.conf"
        said = {
            "AuthType": "auth/munge", "AuthInfo": f"socket={self.munge_socket}",
            "DbdHost": socket.gethostname().split(".")[0], "DbdAddr": "127.0.0.1",
            "DbdPort": self.dbd_port, "CommunicationParameters": "NoInAddrAny",
            "SlurmUser": "slurm", "LogFile": root / "slurmdbd.log", "PidFile": root / "pid",
            "StorageType": "accounting_storage/mysql", "StorageHost": "127.0.0.1",
            "StoragePort": self.sql_port, "StorageUser": "slurm", "StoragePass": "local",
            "StorageLoc": "slurm_acct",
        }  # fmt: skip
        conf.write_text("".join(f"{key}={value}\n" for key, value in said.items()))
        conf.chmod(0o600)
        (root / "slurm.conf").touch()
        for path in (root, conf):
            shutil.chown(path, "slurm", "slurm")
        # slurmdbd finds its own file beside the one SLURM_CONF names.
        self.children.start(
            "slurmdbd", "slurmdbd", "-D", user="slurm", SLURM_CONF=str(root / "slurm.conf")
        )
        first = next(iter(self.clusters.values()))
        until(
            lambda: first.run("sacctmgr", "-n", "-i", "list", "cluster", ok=False) is not None
            and _listens(self.dbd_port),
            "the accounting daemon",
        )
        for name in self.clusters:
            until(
                lambda name=name: "Adding" in first.run(  # type: ignore[misc]
                    "sacctmgr", "-i", "add", "cluster", name, ok=False
                ),
                f"{name} in the accounts",
            )

    def stop(self) -> None:
        """End everything, whatever it does, and remove the scratch directory."""
        strangers = _of_environment(f"SLURM_CONF={self.scratch}")
        self.children.stop()
        for pid in {*strangers, *_of_environment(f"SLURM_CONF={self.scratch}")}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.scratch, ignore_errors=True)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _step_of(pid: int) -> int:
    """The slurmstepd that started a process; 0 if another did."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent if "slurmstepd" in Path(f"/proc/{parent}/comm").read_text() else 0
    except (OSError, IndexError, ValueError):
        return 0


def _of_environment(text: str) -> list[int]:
    """Processes in whose environment a variable begins like this; never this one."""
    mark, found = text.encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            env = (entry / "environ").read_bytes().split(b"\0")
            if any(line.startswith(mark) for line in env):
                found.append(int(entry.name))
    return found
