"""The kit for a login node, run as an ordinary user in a fresh home, again and again."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from regional_agent.settings import load_settings
from regional_agent.site_file import load_site_policy
from tests.integration.session.federation_site import Broker
from tests.keeper_site import isolation_is_possible

ROOT = Path(__file__).resolve().parents[3]
KIT = ROOT / "deploy/slurm-login"
NOBODY = "nobody"
LOOKED_OVER = "isolation: auto\n"
"""No Slurm here."""


@pytest.fixture
async def broker():
    made = Broker()
    await made.start()
    yield made
    await made.close()


class Home:
    """A home directory of a user who is not root."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / ".local/state/tradewind-agent"
        self.as_root = os.geteuid() == 0
        self.programs = path / "bin"
        self.programs.mkdir(parents=True)
        # Keeps the table where crontab would; cron itself is not here.
        lines = ('case "$1" in', '-l) cat "$HOME/crontab";;', '-) cat > "$HOME/crontab";;', "esac")
        self._write("crontab", "\n".join(lines))
        packages = [str(ROOT), str(ROOT / "proto"), sysconfig.get_paths()["purelib"], *sys.path]
        paths = os.pathsep.join(dict.fromkeys(each for each in packages if each))
        python = sys.executable
        if self.as_root:  # our own may lie where nobody may look
            python = "/usr/bin/python3"
        self.agent = self._write(
            "tradewind-agent", f'PYTHONPATH={paths} exec {python} -m regional_agent "$@"'
        )

    def _write(self, name: str, body: str) -> Path:
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
        return file

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.path), "PATH": f"{self.programs}:/usr/bin:/bin"}
        become: list[str] = []  # by a program: this process has threads and must not fork by itself
        if self.as_root:
            user = pwd.getpwnam(NOBODY)
            for each in (self.path, *self.path.rglob("*")):
                os.chown(each, user.pw_uid, user.pw_gid)
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}")
            become = ["setpriv", *ids, "--clear-groups"]
        return subprocess.run(
            [*become, *map(str, words)], capture_output=True, text=True, timeout=90, env=env,
            cwd=self.path,
        )  # fmt: skip


@pytest.fixture
def home(tmp_path_factory):
    """In a place that user may enter."""
    path = Path("/tmp") / f"tradewind-kit-{os.getpid()}"
    made = Home(path)
    probe = made.run(made.agent, "version")
    if probe.returncode:
        shutil.rmtree(path)
        pytest.skip(f"no user but root can run this checkout: {probe.stderr.strip()[-200:]}")
    yield made
    lock = made.state / "agent.lock"
    if lock.exists() and (text := lock.read_text().strip()):
        os.kill(int(text), signal.SIGTERM)
        while Path(f"/proc/{text}").exists():
            time.sleep(0.05)
    made.run(made.agent, "leave", "--force")
    shutil.rmtree(path)


async def test_an_ordinary_user_installs_it_twice_and_has_one_agent(broker, home):
    broker.admit("login", home.state)
    (home.state / "agent.yaml").write_text(LOOKED_OVER)
    kit = (KIT / "install.sh", "--agent", home.agent)
    first = home.run(*kit)
    assert first.returncode == 0, first.stderr
    opened = await broker.connected("login")
    wanted = "shared-uid" if isolation_is_possible() else "sandboxed"
    assert opened.isolation == wanted, "a sandbox needs no root"
    assert (home.state / "site.yaml").exists()
    assert (home.state / "agent.yaml").read_text() == LOOKED_OVER
    crontab = (home.path / "crontab").read_text()
    assert crontab.count("tradewind-agent ensure") == 1 and crontab.startswith("*/5 * * * * ")

    again = home.run(*kit)
    assert again.returncode == 0 and "the crontab has its line" in again.stdout
    assert "agent runs, pid" in again.stdout
    assert (home.path / "crontab").read_text() == crontab
    # What cron does.
    line = crontab.split(None, 5)[5]
    assert home.run("/bin/sh", "-c", line).returncode == 0
    owner = home.state.stat()
    assert owner.st_mode & 0o777 == 0o700 and (owner.st_uid != 0 or not home.as_root)


def test_what_is_missing_is_told(home):
    done = home.run(KIT / "install.sh", "--agent", home.agent)
    assert done.returncode == 1 and "give --join with what" in done.stderr
    done = home.run(KIT / "install.sh", "--agent", home.path / "no")
    assert done.returncode == 1 and "cannot be run" in done.stderr
    assert home.run(KIT / "install.sh", "--what").returncode == 2
    done = home.run(KIT / "install.sh", "--agent", home.agent, "--join", "rm -rf x")
    assert done.returncode == 1 and "--join begins with" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="is about root")
def test_root_is_sent_away(tmp_path):
    done = subprocess.run([str(KIT / "install.sh")], capture_output=True, text=True)
    assert done.returncode == 1 and "not as root" in done.stderr


def test_the_files_it_lays_are_ones_the_agent_takes(tmp_path):
    assert load_settings(tmp_path, KIT / "agent.yaml").slurm is not None
    load_site_policy(KIT / "site.yaml", named=True)


def test_a_kit_in_a_checkout_installs_that_checkout(home):
    home._write("python3.11", 'mkdir -p "$3/bin" 2>/dev/null; echo "$@" >> "$HOME/ran"')
    for name in ("python3.13", "python3.12"):
        home._write(name, "exit 1")
    copied = home.path / "alone/deploy/slurm-login"
    shutil.copytree(KIT, copied)
    for kit, package in ((KIT, f"{ROOT}[agent]"), (copied, "tradewind[agent]")):
        shutil.rmtree(home.path / ".local", ignore_errors=True)
        tool = home.path / ".local/share/tradewind/bin/python"
        tool.parent.mkdir(parents=True)
        tool.write_text('#!/bin/sh\necho "$@" > "$HOME/installed"\n')
        tool.chmod(0o755)
        home.run(kit / "install.sh")
        assert (home.path / "installed").read_text().split()[-1] == package
