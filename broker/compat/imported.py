"""The answer of every reader: the job, if there is one, and what was made of each line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.compat.kinds import Kind
from broker.compat.notes import Findings, Level, Note, in_order
from federation.jobs import InvalidJob, JobFile, JobSpec, parse_job_file


@dataclass(frozen=True, slots=True)
class After:
    """A job this one waits for, as the script names it: an integer, or a job id."""

    job: str
    when: str
    line: int


@dataclass(frozen=True, slots=True)
class Client:
    """What concerns who submits and not the job: where its output is wanted, and the like.

    `output` and `errors` are file name patterns of the old system ("" = not wanted); `flags`
    names what the old submit command was asked to do (`wait`, `parsable`, `test-only`, ...);
    `inherit` names variables whose value is taken from the submitter's environment; `directory`
    is where relative file names start, "" = where it is submitted from.
    """

    output: str = ""
    errors: str = ""
    append: bool = False
    flags: frozenset[str] = frozenset()
    inherit: tuple[str, ...] = ()
    after: tuple[After, ...] = ()
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """A file that was read. `data` is the job as a mapping of the job format, `job` the same
    checked; both are None when there are errors.

    `only` is the one kind of site the job runs right on (`slurm`, `kubernetes`), else empty:
    whoever submits it names clusters of that kind.
    """

    kind: Kind
    data: Mapping[str, Any] | None
    job: JobFile | None
    notes: tuple[Note, ...] = ()
    errors: tuple[Note, ...] = ()
    only: str = ""
    client: Client = field(default_factory=Client)

    @property
    def spec(self) -> JobSpec | None:
        """The job as a spec, without what lies on the user's machine (`workdir`, `files`)."""
        if self.job is None:
            return None
        data = self.job.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"files", "workdir"}
        )
        return JobSpec.model_validate(data)

    @property
    def warnings(self) -> tuple[Note, ...]:
        """The notes that say the job may run otherwise than it did."""
        return tuple(note for note in self.notes if note.level is Level.WARNING)


@dataclass(slots=True)
class Draft:
    """A job while it is being read: its data, where each key came from, and what to tell."""

    kind: Kind
    findings: Findings = field(default_factory=Findings)
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    only: str = ""
    client: Client = field(default_factory=Client)
    directives: Sequence[tuple[int, str]] = ()

    def put(self, path: str, value: Any, line: int = 0) -> None:
        """Set `path` (`resources.cpus`), remembering the line it came from."""
        *parents, last = path.split(".")
        place = self.data
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
        self.lines[path] = line

    def get(self, path: str) -> Any:
        """What stands at `path`, or None."""
        place: Any = self.data
        for part in path.split("."):
            place = place.get(part) if isinstance(place, dict) else None
        return place

    def finish(self) -> Imported:
        """The answer: the job checked against the job format, its faults told by line."""
        told = {note.line for note in self.findings.notes}
        for line, written in () if self.findings.failed else self.directives:
            if line and line not in told:  # nothing goes by without a word
                self.findings.warning(line, written, "nothing was made of it")
        job = None if self.findings.failed else self._checked()
        notes = in_order(n for n in self.findings.notes if n.level is not Level.ERROR)
        errors = in_order(n for n in self.findings.notes if n.level is Level.ERROR)
        data = self.data if job is not None else None
        return Imported(self.kind, data, job, notes, errors, self.only, self.client)

    def _checked(self) -> JobFile | None:
        try:
            return parse_job_file(self.data)
        except InvalidJob as invalid:
            for fault in invalid.errors:
                self.findings.error(
                    self._line_of(fault.path), fault.path, f"{fault.problem}; {fault.remedy}"
                )
            return None

    def _line_of(self, path: str) -> int:
        """The line the nearest key above `path` came from; 0 when none is known."""
        parts = path.replace("[", ".[").split(".")
        while parts:
            key = ".".join(parts)
            if key in self.lines:
                return self.lines[key]
            parts.pop()
        below = [line for key, line in self.lines.items() if key.startswith(f"{path}.")]
        return min(below, default=0)


def failure(kind: Kind, line: int, text: str, what: str = "") -> Imported:
    """A file of which nothing could be made."""
    draft = Draft(kind)
    draft.findings.error(line, what, text)
    return draft.finish()
