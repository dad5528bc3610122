"""A SkyPilot task as a job: its resources with any_of and ordered, files, setup and run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from broker.compat.imported import Draft, Imported
from broker.compat.kinds import Kind
from broker.compat.notes import short
from broker.compat.skypilot_resources import Wanted, read_resources
from broker.compat.skypilot_script import wrap
from broker.compat.yaml_items import Item

_ENV = re.compile(r"(?!TRADEWIND_)[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_IGNORED = {
    "event_callback": "events are followed with `tradewind wait` or the event stream",
    "config": "settings of a client of SkyPilot",
    "pool": "there are no pools of waiting workers",
    "estimated_runtime": "",
}
_REFUSED = {
    "service": "this version runs no services",
    "volumes": "volumes lie in one place: send data as files, or have the job fetch it",
    "storage_mounts": "buckets are not mounted: have the job fetch what it needs",
    "secrets_file": "variables are not read from a file here",
}


def import_skypilot(documents: list[Item]) -> Imported:
    """The job of a task; several tasks in one file (a pipeline) are refused."""
    draft = Draft(Kind.SKYPILOT)
    if len(documents) == 2 and set(dict(documents[0].items())) <= {"name", "execution"}:
        documents = documents[1:]  # a heading over one task
    if len(documents) != 1:
        line = documents[1].line if len(documents) > 1 else 0
        draft.findings.error(line, "", "a pipeline of tasks: give each a file of its own")
        return draft.finish()
    _Task(draft, documents[0]).read()
    return draft.finish()


class _Task:
    def __init__(self, draft: Draft, root: Item) -> None:
        self._draft = draft
        self._findings = draft.findings
        self._root = root

    def read(self) -> None:
        """Every key of the task, each with a note."""
        readers: dict[str, Callable[[Item], None]] = {
            "name": self._name, "workdir": self._workdir, "envs": self._envs,
            "secrets": self._secrets, "file_mounts": self._file_mounts,
            "num_nodes": self._num_nodes, "resources": self._resources,
            "inputs": self._data, "outputs": self._data,
            "setup": lambda _: None, "run": lambda _: None,
        }  # fmt: skip
        for key, item in self._root.items():
            if key in readers:
                if item.value is not None:
                    readers[key](item)
            elif key in _REFUSED:
                self._findings.error(item.line, key, _REFUSED[key])
            elif key in _IGNORED:
                self._findings.ignored(item.line, key, _IGNORED[key] or "measured here")
            else:
                self._findings.warning(item.line, short(key), "unknown key: left out")
        self._script()

    def _name(self, item: Item) -> None:
        name = item.scalar or ""
        self._draft.put("name", name[:128], item.line)
        self._findings.understood(item.line, "name", f"name: {short(name)}")

    def _workdir(self, item: Item) -> None:
        if isinstance(item.value, dict):
            self._findings.error(
                item.line,
                "workdir",
                "a git repository is not fetched: name a"
                " local directory, or have the job clone it",
            )
            return
        self._draft.put("workdir", item.scalar, item.line)
        self._findings.understood(item.line, f"workdir: {item.scalar}", "sent along")

    def _envs(self, item: Item) -> None:
        env: dict[str, str] = {}
        for key, value in item.items():
            if not _ENV.fullmatch(key):
                self._findings.error(
                    value.line, short(key, 40), "not usable as a variable's name"
                )
            elif value.value is None:
                self._findings.error(
                    value.line,
                    key,
                    "has no value: write one",
                )
            elif value.scalar is None:
                self._findings.error(value.line, key, "not a text")
            else:
                env[key] = value.scalar
        if env:
            self._draft.put("env", env, item.line)
            self._findings.understood(item.line, "envs", f"env: {short(', '.join(env))}")

    def _secrets(self, item: Item) -> None:
        names = [key for key, _ in item.items()]
        for key, value in item.items():
            if value.value not in (None, ""):
                self._findings.error(
                    value.line,
                    key,
                    "the value of a secret stands in the file:"
                    " leave it empty, it is sealed when submitted",
                )
        if names:
            self._draft.put("secrets", names, item.line)
            self._findings.translated(
                item.line, "secrets", f"secrets: {short(', '.join(names))}"
            )

    def _file_mounts(self, item: Item) -> None:
        files: dict[str, str] = {}
        for target, source in item.items():
            path = self._target(target, source)
            text = source.scalar
            if text is None:
                self._findings.error(
                    source.line,
                    short(target),
                    "buckets are not mounted: have the job fetch what it needs",
                )
            elif re.match(r"[a-z][a-z0-9+.-]*://", text):
                self._findings.error(
                    source.line,
                    short(text),
                    "is not fetched before the start: have the job fetch it",
                )
            elif path is not None:
                files[path] = text
                self._findings.translated(
                    source.line, short(target), f"files: {path} from {text}"
                )
        if files:
            self._draft.put("files", files, item.line)

    def _target(self, target: str, source: Item) -> str | None:
        path = target.removeprefix("~/").removeprefix("~/sky_workdir/").removeprefix("./")
        path = posixpath.normpath(path.removeprefix("sky_workdir/"))
        if path.startswith(("/", "~", "..")) or path == ".":
            self._findings.error(
                source.line,
                short(target),
                "lies outside the job's directory: only places below ~/ can be filled",
            )
            return None
        return path

    def _num_nodes(self, item: Item) -> None:
        value = item.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._findings.error(item.line, f"num_nodes: {item.scalar}", "not a whole number")
            return
        if value > 1:
            self._draft.put("resources.replicas", value, item.line)
        self._findings.understood(
            item.line, f"num_nodes: {value}", f"replicas: {value}, one gang"
        )

    def _resources(self, item: Item) -> None:
        wanted = read_resources(item, self._findings)
        if wanted is not None:
            self._put(wanted)

    def _put(self, wanted: Wanted) -> None:
        for key, value in wanted.fields.items():
            self._draft.put(key, value, wanted.lines.get(key, 0))

    def _data(self, item: Item) -> None:
        self._findings.warning(item.line, "inputs and outputs", "data named here is not moved")

    def _script(self) -> None:
        run, setup = self._root.get("run"), self._root.get("setup")
        texts = []
        for key, item in (("setup", setup), ("run", run)):
            if item is not None and item.value is not None and item.scalar is None:
                self._findings.error(item.line, key, "not a text")
            texts.append((item.scalar if item else None) or "")
        line = (run or setup or self._root).line
        if not any(text.strip() for text in texts):
            self._findings.error(line, "run", "nothing to run")
            return
        for item, text in ((setup, texts[0]), (run, texts[1])):
            self._node_addresses(item, text)
        gpus = self._draft.get("resources.accelerators")
        first = gpus[0] if isinstance(gpus, list) else gpus
        count = int(first.rpartition(":")[2]) if isinstance(first, str) else 0
        nodes = self._draft.get("resources.replicas") or 1
        self._draft.put("run", wrap(texts[0], texts[1], nodes, count), line)
        if setup and texts[0].strip():
            self._findings.translated(
                setup.line,
                "setup",
                "runs before `run`, on every node, each time the job starts",
            )
        if run and texts[1].strip():
            self._findings.understood(run.line, "run", "run")

    def _node_addresses(self, item: Item | None, text: str) -> None:
        if item is None or (self._draft.get("resources.replicas") or 1) == 1:
            return
        uses = len(re.findall(r"SKYPILOT_(?:SETUP_)?NODE_IPS", text))
        first = len(re.findall(r"NODE_IPS}?\"?'?\s*\|\s*head\s+(?:-n\s*1|-1)\b", text))
        if uses > first:
            self._findings.error(
                item.line,
                "SKYPILOT_NODE_IPS",
                "only the address of the first node is known: take it with `| head -n1`",
            )
