"""The pod's side: `python -m regional_agent.act.carry.pod`, beside the job's own container.

It fetches what the job needs, waits for the job to begin, takes its claim at the agent, and carries
logs and marks while it runs; when the job's container is gone it carries the rest, its outputs, and
last of all how it ended. An agent that is away is asked again: the job's end waits for it. Only the
standard library, because one of these runs beside every job.

The two containers meet in the directory they share: `ready` says that everything is there, the pipe
`alive` is written to by the job's first process and closed by its death, `told` says that the claim
was answered.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.parse import quote, urlsplit

from regional_agent.act import unpack
from regional_agent.act.carry import files
from regional_agent.act.keeper import capture
from regional_agent.act.matching import matching

LOOK_S = 0.5
REIN_IN_EVERY = 20
AGAIN_MAX_S = 10.0
WITHIN_S = 60.0
PIECE_BYTES = 2**18
FINAL = 400
"""From this status on, and below 500, asking again is vain."""
SERVER = 500


class Vain(Exception):
    """The agent will not do it."""


class Stopped(Exception):
    """The pod is being ended, and its job has not begun."""


@dataclass(slots=True)
class Agent:
    """The agent, asked until it answers. `gone` is looked at between two tries."""

    url: str
    ca_pem: str
    token: str
    uid: str
    gone: Callable[[], bool] = lambda: False
    _kept: http.client.HTTPSConnection | None = field(default=None, init=False)

    def ask(
        self, method: str, path: str, body: bytes | Path = b"", into: Path | None = None
    ) -> bytes:
        """The answer's body, or a file of it. Raises Vain, Stopped."""
        wait_s = 0.2
        while True:
            try:
                status, data = self._once(method, path, body, into)
            except (OSError, http.client.HTTPException):
                self._kept, status, data = None, SERVER, b""
            if status < FINAL:
                return data
            if status < SERVER:
                raise Vain(f"{status}: {data.decode(errors='replace')[:300]}")
            if self.gone():
                raise Stopped
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_MAX_S)

    def _once(
        self, method: str, path: str, body: bytes | Path, into: Path | None
    ) -> tuple[int, bytes]:
        if self._kept is None:
            where = urlsplit(self.url)
            context = ssl.create_default_context(cadata=self.ca_pem)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            self._kept = http.client.HTTPSConnection(
                where.hostname or "", where.port, timeout=WITHIN_S, context=context
            )
        head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/octet-stream"}
        with contextlib.ExitStack() as opened:
            data = body
            if isinstance(body, Path):
                head["Content-Length"] = str(body.stat().st_size)
                data = opened.enter_context(body.open("rb"))  # type: ignore[assignment]
            target = f"/v1/attempts/{quote(self.uid)}/{path}"
            self._kept.request(method, target, data, head)  # type: ignore[arg-type]
            answer = self._kept.getresponse()
            if into is None or answer.status >= FINAL:
                return answer.status, answer.read()
            with into.open("wb") as file:
                shutil.copyfileobj(answer, file, PIECE_BYTES)
            return answer.status, b""


class Pod:
    """One pod. `environ` is what its manifest gave it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._root = Path(environ["TW_DIR"])
        self._local = environ["TW_POD"]
        self._part = int(environ["TW_PART"])
        self._rank = int(environ.get("JOB_COMPLETION_INDEX", 0)) if "TW_SERVICE" in environ else -1
        self._stopping = self._begun = False
        self._agent = Agent(
            environ["TW_CARRY_URL"], environ["TW_CARRY_CA"], environ["TW_CARRY_TOKEN"],
            environ["TW_ATTEMPT"], lambda: self._stopping and not self._begun,
        )  # fmt: skip
        self._alive = -1
        self._sent: dict[str, int] = {}
        self._shared: set[str] = set()
        self._came: set[str] = set()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: the job was told too, and what is to be carried comes when it has ended."""
        self._stopping = True

    def run(self) -> int:
        """Until everything is carried."""
        try:
            self._stage()
            claim = self._claimed()
        except Stopped:
            return 0
        looks = 0
        while not self._ended():
            looks += 1
            self._carry_logs(reins=looks % REIN_IN_EVERY == 0)
            if self._rank == 0 or (self._rank > 0 and looks % 2):
                self._carry_members()
        self._finish(claim)
        return 0

    # Before it begins ---------------------------------------------------------------------------

    def _stage(self) -> None:
        for name in ("claims", "marks", "logs", "work"):
            (self._root / name).mkdir(mode=0o700, exist_ok=True)
        packed = self._root / ".packed"
        for path, into in (("scripts", self._root), ("work", self._root / "work")):
            self._agent.ask("GET", path, into=packed)
            unpack.unpack(packed, into)
            packed.unlink()
        os.mkfifo(self._root / "alive", 0o600)
        self._alive = os.open(self._root / "alive", os.O_RDONLY | os.O_NONBLOCK)
        (self._root / "ready").touch()

    def _claimed(self) -> str:
        """The name of the claim, once the job's script has asked for it and was answered."""
        said = b""
        while not said.endswith(b"\n"):
            heard = self._heard()
            if heard == b"" or (self._stopping and not said):  # it died, or shall not begin
                raise Stopped
            said += heard or b""
        self._begun = True
        name = said.decode("ascii").strip()
        asked = json.dumps({"part": self._part, "local": self._local}).encode()
        found = json.loads(self._agent.ask("POST", f"claims/{name}", asked))
        for each, text in found["lay"].items():
            (self._root / "claims" / each).write_text(text)
        if found["cancelled"] is not None:
            (self._root / "cancelled").write_text(found["cancelled"])
        (self._root / "told").touch()
        return name

    def _heard(self) -> bytes | None:
        """From the job's first process within a moment; None: nothing, b"": it is gone."""
        if not select.select([self._alive], [], [], LOOK_S)[0]:
            return None
        return os.read(self._alive, 4096)

    # While it runs ------------------------------------------------------------------------------

    def _ended(self) -> bool:
        return self._heard() == b""

    def _carry_logs(self, *, reins: bool = False, ended: bool = False) -> None:
        for path in sorted((self._root / "logs").iterdir()):
            if reins:
                capture.rein_in(path)
            if ended:
                capture.close_off(path)
                if not path.exists():
                    continue
            size = capture.visible_bytes(path.stat().st_size, ended=ended)
            self._carry_log(path, size)

    def _carry_log(self, path: Path, size: int) -> None:
        at = self._sent.get(path.name, 0)
        with path.open("rb") as file:
            while at < size:
                file.seek(at)
                piece = file.read(min(PIECE_BYTES, size - at))
                answer = self._agent.ask("PUT", f"logs/{path.name}?offset={at}", piece)
                at = int(json.loads(answer)["bytes"])
        self._sent[path.name] = at

    def _carry_members(self) -> None:
        """What this member of a gang has to tell all, and what it has to hear."""
        for path in sorted((self._root / "marks").iterdir()):
            if files.TO_ALL.fullmatch(path.name) and path.name not in self._came:
                self._share(path)
        told = json.loads(self._agent.ask("GET", f"members?first={int(self._rank == 0)}"))
        for kind, found in told.items():
            for name, text in found.items():
                self._lay(self._root / kind / name, text)

    def _share(self, path: Path) -> None:
        text = path.read_bytes()
        if path.name not in self._shared and (text or path.name == "stop"):
            self._agent.ask("PUT", f"marks/{path.name}", text)
            self._shared.add(path.name)

    def _lay(self, path: Path, text: str) -> None:
        key = f"{path.parent.name}/{path.name}"
        own = path.name == ("0" if self._rank == 0 else f"rank.{self._rank}")
        if key in self._came or own:
            return
        self._came.add(key)
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(text)
        fresh.rename(path)

    # When it has ended --------------------------------------------------------------------------

    def _finish(self, claim: str) -> None:
        """Its mark goes last: by then everything else is there."""
        self._carry_outputs()
        self._carry_logs(ended=True)
        for path in sorted((self._root / "marks").iterdir()):
            if files.TO_ALL.fullmatch(path.name):
                self._share(path)
        for path in (self._root / "marks").glob(f"{claim}*"):
            if path.name == claim or path.name.removeprefix(f"{claim}.").isdigit():
                self._agent.ask("PUT", f"marks/{path.name}", self._whole(path))

    def _whole(self, mark: Path) -> bytes:
        """A mark; that of a gang's first says how the member ended that failed first, which may
        not have been here yet when its script wrote it."""
        text = mark.read_text()
        if self._rank == 0:
            told = json.loads(self._agent.ask("GET", "members?first=0"))["marks"]
            first = told.get(f"first.{mark.name.partition('.')[0]}", "").strip()
            head, _, rest = text.partition("\n")
            if first:
                text = f"{head.partition(' ')[0]} {first}\n{rest}"
        return text.encode()

    def _carry_outputs(self) -> None:
        keep = self._root / files.KEEP
        patterns = keep.read_text().splitlines() if keep.exists() else []
        try:
            found = matching(self._root / "work", patterns)
            if found:
                packed = self._root / ".outputs"
                files.pack(self._root / "work", iter(found.items()), packed)
                self._agent.ask("PUT", "outputs", packed)
        except (Vain, ValueError, OSError) as problem:
            name = next((self._root / "logs").iterdir(), self._root / "logs/output")
            with name.open("a") as log:
                log.write(f"tradewind: outputs were not brought back: {problem}\n")


def main() -> int:
    """As the container's first process."""
    pod = Pod(os.environ)  # noqa: TID251 - a program of its own, with no other settings
    signal.signal(signal.SIGTERM, pod.stop)
    try:
        return pod.run()
    except Vain as problem:
        sys.stderr.write(f"tradewind: the agent says {problem}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
