"""Specs this replica has just read, so that its leader need not read them a second time."""

from __future__ import annotations

import json

from federation.jobs import JobSpec, parse_job_spec

KEPT_MAX = 5_000


class ParsedSpecs:
    """From the bytes of a spec, as stored, to the spec; each is given out once."""

    def __init__(self) -> None:
        self._specs: dict[bytes, JobSpec] = {}

    def keep(self, raw: bytes, spec: JobSpec) -> None:
        """`spec` is what these bytes say. Of too many the oldest are dropped."""
        self._specs[raw] = spec
        if len(self._specs) > KEPT_MAX:
            self._specs = dict(list(self._specs.items())[KEPT_MAX // 2 :])

    def take(self, raw: bytes) -> JobSpec:
        """The spec of these bytes. Raises InvalidJob, ValueError, RecursionError."""
        return self._specs.pop(raw, None) or parse_job_spec(json.loads(raw))
