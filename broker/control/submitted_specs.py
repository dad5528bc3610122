"""Reading what was submitted: checked, completed, allowed to whom, and how it is stored.

The jobs of a sweep are alike in all but their program: what else they say is read, checked and
completed for the first of them and kept as a `Template`, found again by the JSON text of it. The
program of each is checked by the rules that hold for every job. Whose token it is and what the
policies say is looked at for each job, never kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from broker.control.admission_rules import complete, input_faults, replace_faults
from broker.control.policies import mutated, ruling_class
from broker.control.policy_book import PolicyBook
from broker.control.snapshots import Specs
from broker.control.steps import in_steps
from broker.control.tenants import Tenants
from broker.control.viewing import DEFAULT_TENANT, Viewer
from broker.model.fleet import TenantPolicy
from broker.model.policies import Ruling
from broker.sense.datasets import read_datasets
from broker.sense.fleet import read_identities
from broker.state import keys
from broker.state.projection import Projection
from federation.environment import Clock
from federation.job_model import Program
from federation.jobs import (
    FieldError,
    InvalidJob,
    JobSpec,
    canonical_data,
    canonical_text,
    parse_job_spec,
)
from federation.tickets import spec_digest

ERRORS_MAX = 50
TEMPLATES_MAX, TEMPLATE_TEXT_MAX = 200, 16_384
"""How many are kept, and how long (characters) the common text of one may be."""
_PROGRAM = ("command", "name", "run")
_TEXT = json.JSONEncoder(separators=(",", ":"))


class CanonicalText:
    """Writes the canonical bytes of jobs alike in all but their program: its keys stand between
    what they have in common, all in order."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        """`whole` is the canonical form of one of them (`canonical_data`)."""
        rest = {key: said for key, said in whole.items() if key not in _PROGRAM}
        self._parts: list[tuple[bytes, str]] = []
        for name in _PROGRAM:
            before = {key: rest.pop(key) for key in list(rest) if key < name}
            self._parts += [(_inside(before), ""), (canonical_text(name) + b":", name)]
        self._parts.append((_inside(rest), ""))

    def of(self, program: Mapping[str, Any]) -> bytes:
        """The bytes of the one with this program; what is None is not said."""
        said = [
            text + canonical_text(program[name]) if name else text
            for text, name in self._parts
            if (program[name] is not None if name else text)
        ]
        return b"{%b}" % b",".join(said)


def _inside(data: Mapping[str, Any]) -> bytes:
    return canonical_text(data)[1:-1]


class TenantRefused(Exception):
    """The submitter may not act for this tenant; the text says for which they may."""


@dataclass(slots=True)
class Template:
    """Jobs alike in all but their program. `asked`: the first of them as it was sent; `whole`:
    as completed under `policy`; `text`: writes the canonical bytes of one with its program.
    `free_class` is its class where there are no policies, empty until it is known."""

    asked: JobSpec
    policy: TenantPolicy
    whole: JobSpec
    text: CanonicalText
    free_class: str = ""


class Ready(NamedTuple):
    """A spec that may be taken on, its bytes as they are stored, and their digest."""

    spec: JobSpec
    stored: bytes
    digest: str
    template: Template | None = None

    @staticmethod
    def of(spec: JobSpec, stored: bytes, template: Template | None = None) -> Ready:
        """With the digest of `stored`."""
        return Ready(spec, stored, spec_digest(stored), template)


class SubmittedSpecs:
    """Reads specs for one replica."""

    def __init__(self, projection: Projection, clock: Clock) -> None:
        self._projection = projection
        self._clock = clock
        self.tenants = Tenants(projection.value)
        self.policies = PolicyBook(projection)
        self._templates: dict[str, Template] = {}

    def tenant_of(self, spec: JobSpec, viewer: Viewer) -> str:
        """The tenant a spec is submitted for. Raises TenantRefused, InvalidJob."""
        tenant = spec.tenant or viewer.home_tenant
        if not viewer.may_see(tenant):
            raise TenantRefused(
                f"this token may not submit for tenant {tenant}; it may for "
                f"{', '.join(viewer.tenants)}"
            )
        if viewer.operator and not self.tenants.known(tenant):
            recorded = (keys.last_part(kv.key) for kv in self._projection.under(keys.TENANTS))
            known = sorted({DEFAULT_TENANT, *recorded})
            remedy = f"known: {', '.join(known[:20])}"
            raise InvalidJob([FieldError("tenant", tenant, "no such tenant", remedy)])
        return tenant

    def read(self, data: object, viewer: Viewer) -> Ready:
        """`data` (parsed JSON) as a spec with tenant, deadline and runtime filled in; its policies
        are looked at, not written in. Raises InvalidJob with every error, TenantRefused."""
        common = _common_text(data)
        template = self._templates.get(common) if common else None
        if template is not None and isinstance(data, dict):
            ready = self._like(template, data, viewer)
            if ready is not None:
                return ready
        asked = parse_job_spec(data)
        policy = self.tenants.policy(self.tenant_of(asked, viewer))
        done = complete(asked, policy, self._clock.now_ms())
        self._refuse(done.spec, done.errors)
        written = mutated(done.spec, self.policies.policies())
        if written is not done.spec:  # what a policy writes in is looked at for each job
            self._refuse(written, [])
            return Ready.of(written, canonical_text(canonical_data(written)))
        whole = canonical_data(done.spec)
        if common and done.spec.deadline is None:
            template = Template(asked, policy, done.spec, CanonicalText(whole))
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            self._templates[common] = template
        return Ready.of(done.spec, canonical_text(whole), template)

    def tier_of(self, job: str) -> tuple[int, str] | None:
        """The priority that a policy keeps a job at, and the policy; None where none does."""
        spec, policies = Specs(self._projection).of(job), self.policies.policies()
        for label in self.policies.govern(spec).policies if spec else ():
            version = policies.current.get(label.partition("@")[0])
            if version is not None and version.policy.tier is not None:
                return version.policy.tier, label
        return None

    def _like(self, template: Template, data: dict[str, Any], viewer: Viewer) -> Ready | None:
        """A job like others before it; None where it has to be read in full: its tenant's rules
        are others by now, or its program is wrong."""
        policy = self.tenants.policy(self.tenant_of(template.asked, viewer))
        if policy is not template.policy and policy != template.policy:
            return None
        given = {key: data[key] for key in _PROGRAM if key in data}
        try:
            program = Program.model_validate(given)
        except ValidationError:
            return None
        own = {"command": program.command, "name": program.name, "run": program.run}
        # What this version does not do was looked for in the first of them: no rule reads programs.
        spec = template.whole.model_copy(update=own)
        self._refuse(spec, [])
        if mutated(spec, self.policies.policies()) is not spec:
            return None
        return Ready.of(spec, template.text.of(own), template)

    def _refuse(self, spec: JobSpec, errors: Sequence[FieldError]) -> None:
        looked_up = spec.on_disconnect.replace or spec.inputs
        if not errors and not looked_up and self.policies.free(spec):
            return
        fences = replace_faults(spec, lambda: read_identities(self._projection))
        inputs = input_faults(spec, read_datasets(self._projection)) if spec.inputs else []
        found = [*errors, *self.policies.faults(spec), *fences, *inputs]
        if found:
            raise InvalidJob(found)

    async def read_all(self, data: Sequence[object], viewer: Viewer) -> list[Ready]:
        """All of a request, with pauses. Raises as `read` does, with the errors of all."""
        if len(data) == 1:
            return [self.read(data[0], viewer)]
        ready: list[Ready] = []
        errors: list[FieldError] = []
        async for index, item in in_steps(enumerate(data)):
            try:
                ready.append(self.read(item, viewer))
            except InvalidJob as invalid:
                errors.extend(_below(f"jobs[{index}]", fault) for fault in invalid.errors)
                if len(errors) >= ERRORS_MAX:
                    break
        if errors:
            raise InvalidJob(errors[:ERRORS_MAX])
        return ready

    def class_key(self, ready: Ready) -> str:
        """The class of a job under the policies in force."""
        template = ready.template if self.policies.free(ready.spec) else None
        if template is not None and template.free_class:
            return template.free_class
        ruling = self.ruling(ready)
        key = ruling_class(ruling, ready.spec.max_runtime_s or 0)
        if template is not None:
            template.free_class = key
        return key

    def ruling(self, ready: Ready) -> Ruling:
        """What the policies in force make of it."""
        return self.policies.govern(ready.spec, ready.digest)


def _common_text(data: object) -> str:
    """What a job has in common with the others of its sweep; empty where nothing is to be kept.
    JSON tells 1 from 1.0, true and "1", so that equal texts are read alike."""
    if not isinstance(data, dict):
        return ""
    try:
        text = _TEXT.encode({key: data[key] for key in data if key not in _PROGRAM})
    except (TypeError, ValueError):  # not from JSON
        return ""
    return text if len(text) <= TEMPLATE_TEXT_MAX else ""


def _below(prefix: str, fault: FieldError) -> FieldError:
    path = f"{prefix}.{fault.path}" if fault.path else prefix
    return FieldError(path, fault.value, fault.problem, fault.remedy)
