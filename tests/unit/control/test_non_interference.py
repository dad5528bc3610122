"""What a user is told does not depend on the names and programs of others: two federations that
differ in nothing else give the same answers, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.control.admitting import Admitting
from broker.control.build_problem import Waiting, World, build
from broker.control.cycle import CycleRecord, Decided
from broker.control.explaining import Explainer
from broker.control.plan_applier import PlanApplier
from broker.control.policies import govern
from broker.control.policy_trial import TrialPorts
from broker.control.submission import Request, Shell, Submissions
from broker.control.tenants import put_tenant
from broker.control.viewing import Viewer
from broker.control.whatif import WhatIf, WhatIfAsk
from broker.decide.admission.shares import Past
from broker.decide.admission.wishes import Wish
from broker.decide.decision import Budget, decide
from broker.decide.whatif import Changes, QuotaChange
from broker.feedback.backends.memory import MemoryBlobs, MemoryLedger
from broker.model.admission import AdmissionRules
from broker.model.fleet import Fleet, TenantPolicy
from broker.model.jobs import Attempt, AttemptPhase
from broker.model.policies import Policies
from broker.model.problem import Problem
from broker.sense.preemptions import Preemptions
from broker.sense.start_delay import StartDelays
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.group_commit import GroupCommitter
from broker.state.keyring import Keyring
from broker.state.projection import Projection
from federation.ids import AttemptUid, Cluster, JobId, Tenant, make_job_id
from federation.jobs import JobSpec, parse_job_spec
from federation.system import SystemClock
from tests.integration.api.world import fleet_of_two

NOW_MS = 1_800_000_000_000
ADA = Viewer("ada", ("physics",))
ANYBODY = Viewer("root", operator=True)


@dataclass
class Standing:
    """A clock that stands still, and ids that come in order."""

    count: int = 0

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_s(self) -> float:
        return 1.0

    def job_id(self, now_ms: int) -> JobId:
        self.count += 1
        return make_job_id(now_ms, self.count)

    def token_bytes(self, n: int) -> bytes:
        return bytes(n)


@dataclass
class Others:
    """Who else is there: names and programs; how much they ask for is the same in all."""

    tenants: tuple[str, str]
    words: str

    def jobs(self) -> list[dict[str, Any]]:
        shared = {"max_runtime": "2h", "expected_runtime": "1h"}
        first, second = self.tenants
        return [
            {"run": f"run {self.words} {n}", "name": f"{self.words}-{n}", "tenant": tenant,
             "env": {"SECRET": self.words}, "labels": {"team": self.words}, **shared,
             "resources": {"accelerators": f"H100:{4 if n % 2 else 8}"}}
            for n, tenant in enumerate((first, second, first, second, first))
        ]  # fmt: skip


OWN: list[dict[str, Any]] = [
    {"run": "train", "tenant": "physics", "resources": {"accelerators": "H100:8"},
     "max_runtime": "3h"},
    {"run": "far", "tenant": "physics", "resources": {"accelerators": "H100:1"},
     "max_runtime": "1h", "placement": {"regions": ["eu-west"]}},
]  # fmt: skip


@dataclass
class Leading:
    """What an explainer asks of the office, on the replica that leads."""

    last_cycle: CycleRecord | None = None
    term: Any = None
    links: Any = field(default_factory=dict)
    starts: Any = field(
        default_factory=lambda: SimpleNamespace(delays=StartDelays(), preemptions=Preemptions())
    )

    def leading(self) -> bool:
        return self.last_cycle is not None

    def prepared_in(self, job: str) -> None:
        return None

    def let_go(self, job: object) -> list[str]:
        return []

    def said_runtime_s(self, job: str) -> int | None:
        return 3600

    async def decide(self, problem: Problem) -> Decided:
        return Decided(decide(problem, Budget(cpu_s=1.0)), 0.0)


class NobodyRuns:
    """Books without attempts."""

    def clusters(self) -> tuple[str, ...]:
        return ()

    def neighbours(self) -> None:
        return None


def admitting(others: Others, cycle: CycleRecord) -> Admitting:
    """Admission after that cycle: others have held more and less than their share, and wait."""
    past = Past(at_ms=NOW_MS, depth=1.0, average={others.tenants[0]: 0.4, "physics": 0.2})
    waits = tuple(Wish(job) for job in cycle.problem.jobs if job.tenant != "physics")
    assert waits
    books: Any = NobodyRuns()
    return Admitting(books, AdmissionRules(), past, waits=waits)


class FixedSites:
    """Sites that report the same for ever."""

    def fleet(self) -> Fleet:
        known = dict(fleet_of_two(NOW_MS).clusters)
        east = known[Cluster("east-1")]
        assert east.capacity is not None
        (pool,) = east.capacity.pools
        groups = tuple(replace(group, accelerator="H100") for group in pool.groups)
        capacity = replace(east.capacity, pools=(replace(pool, groups=groups),))
        known[Cluster("east-1")] = replace(east, capacity=capacity, reported=True)
        return Fleet(known)


@asynccontextmanager
async def submitted(tmp: Path, others: Others) -> AsyncIterator[Projection]:
    """Jobs of others and of our own in etcd."""
    standing = Standing()
    store = MemoryStore(SystemClock())
    projection = Projection(store, on_unreadable=lambda text: None)
    follow = asyncio.create_task(projection.run())
    await projection.ready.wait()
    keyring = Keyring.open(tmp, "test", now_ms=NOW_MS, ids=standing)  # type: ignore[arg-type]
    ledger = MemoryLedger()
    shell = Shell(
        store=store, lanes=(GroupCommitter(store),), projection=projection, mac_keys=keyring,
        blobs=MemoryBlobs(), clock=standing, ids=standing, ended=ledger.job,
    )  # fmt: skip
    taken = Submissions(shell)
    try:
        for policy in quotas(others).values():
            await put_tenant(store, policy)
        async with asyncio.timeout(10):
            while len(list(projection.under(keys.TENANTS))) < 3:
                await asyncio.sleep(0.01)
        await taken.submit([*others.jobs(), *OWN], Request(ANYBODY, b""))
        async with asyncio.timeout(10):
            while len(projection.jobs()) < len(OWN) + 5:
                await asyncio.sleep(0.01)
        yield projection
    finally:
        follow.cancel()
        await store.close()


def quotas(others: Others) -> dict[str, TenantPolicy]:
    """The same for the first and for the second of the others, whatever they are called."""
    first, second = others.tenants
    return {
        first: TenantPolicy(first, 3, 64),
        second: TenantPolicy(second, 1, 64),
        "physics": TenantPolicy("physics", 1, 8),
    }


def running(others: Others) -> Mapping[str, list[Attempt]]:
    """Work of others that holds half a node."""
    attempt = Attempt(
        AttemptUid("j0000000000000001-1"), JobId("j0000000000000001"), Tenant(others.tenants[0]),
        Cluster("east-1"), "us-east", "h", 1, 1, b"", NOW_MS - 60_000, placed_seq=1,
        accelerators_per_replica=4, accelerator="H100", max_runtime_s=7200,
        started_ms=NOW_MS - 50_000, phase=AttemptPhase.RUNNING,
    )  # fmt: skip
    return {"east-1": [attempt]}


def cycle_of(projection: Projection, world: World, specs: Mapping[str, JobSpec]) -> CycleRecord:
    """The cycle that looked at all of them."""
    waiting = {
        str(job.id): Waiting.under(govern(specs[job.id], Policies()), job, 1)
        for job in projection.jobs()
    }
    problem = build(world, waiting.values())
    plan = decide(problem, Budget(cpu_s=1.0))
    applier = PlanApplier(plan, problem, world, "1.1", frozenset(), waiting)
    return CycleRecord("1.1", 1, NOW_MS, 0.1, problem, Decided(plan, 0.0), world, applier)


async def answers(tmp: Path, others: Others) -> list[str]:
    """Everything Ada is told about decisions, as the API would send it."""
    async with submitted(tmp, others) as projection:
        office, ledger, clock = Leading(), MemoryLedger(), Standing()
        explainer = Explainer(
            office, projection, FixedSites(), ledger, clock, {},  # type: ignore[arg-type]
        )  # fmt: skip
        world = replace(explainer.world(), attempts=running(others), tenants=quotas(others))
        mine = [job for job in projection.jobs() if job.tenant == "physics"]
        assert len(mine) == len(OWN)
        data = [*others.jobs(), *OWN]
        specs = {
            job.id: parse_job_spec(data[n])
            for n, job in enumerate(sorted(projection.jobs(), key=lambda job: job.id))
        }
        told = []
        cycle = cycle_of(projection, world, specs)
        office.term = SimpleNamespace(
            admitting=admitting(others, cycle), books=NobodyRuns()
        )
        for office.last_cycle in (cycle, None):
            for job in mine:
                told.append(await explainer.explain(job, specs[job.id], ADA))
            told.append(await explainer.dry_run(specs[mine[0].id], "physics", ADA))
        trying = TrialPorts(projection, ledger, lambda: world, office.decide)
        added = parse_job_spec({**OWN[0], "max_runtime": "1h"})
        for asked in (
            WhatIfAsk(Changes(drain=("eu-west",))),
            WhatIfAsk(Changes(lose=("us-east",))),
            WhatIfAsk(Changes(quotas=(QuotaChange("physics", 64),)), jobs=((added, 2),)),
        ):
            told.append(await WhatIf(trying).answer(asked, ADA))
        return [json.dumps(answer) for answer in told]


async def test_the_names_and_programs_of_others_change_nothing_that_a_user_is_told(
    tmp_path: Path,
) -> None:
    one = Others(("alpha", "beta"), "secret-of-alpha")
    other = Others(("zulu-much-longer", "delta"), "x")
    first = await answers(tmp_path / "one", one)
    second = await answers(tmp_path / "other", other)
    assert len(first) == 9
    for a, b in zip(first, second, strict=True):
        assert a == b
    for word in (*one.tenants, one.words):
        assert all(word not in answer for answer in first), word


async def test_what_others_hold_is_told_in_totals(tmp_path: Path) -> None:
    told = [json.loads(a) for a in await answers(tmp_path, Others(("alpha", "beta"), "w"))]
    whatif = told[-1]
    assert [row["code"] for row in told[1]["waiting"]][0] == "region_not_allowed"
    assert told[0]["waiting"][0]["code"] == "no_capacity", "it waits for room behind others"
    dry = told[2]
    assert dry["admission"]["turn"] is False and dry["admission"]["share"] is not None
    assert whatif["moved"] >= len(whatif["moves"])
    assert {move["tenant"] for move in whatif["moves"]} <= {"physics"}
    assert sum(whatif["today"]["placed"].values()) > 0, "others are counted"
