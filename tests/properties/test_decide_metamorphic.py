"""Changes whose effect on the proved optimum is known, and problems made to break things."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from broker.cli.bench.instances import Size, an_instance
from broker.decide.baselines import Baseline, decide_simply
from broker.decide.decision import Budget, decide
from broker.decide.problem_file import parse_problem, problem_from_json
from broker.decide.strict_json import ProblemError
from broker.decide.verify import verify
from broker.model.plan import Plan
from tests.properties.test_brute_forces_judge import LIFTS, drawn
from tests.properties.test_decide_brute_force import Document, a_document, rank, same
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar

HUGE = 2**53


def copy_of(document: Document) -> Document:
    copied: Document = json.loads(json.dumps(document))
    return copied


# Lower tiers ------------------------------------------------------------------------------------


def lower_work(dice: random.Random, pools: list[Document]) -> list[Document]:
    """Jobs of the lowest tier that go nearly everywhere, and many of them."""
    return [
        a_job(
            f"low{index}",
            priority=0,
            count=dice.choice([1, 7, 1000]),
            accelerators={"H100": 1, "A100": 1},
            accelerators_per_replica=dice.choice([1, 2, 3, 4]),
            replicas=dice.choice([1, 1, 2]),
            runtime_h=dice.choice([0.1, 5]),
            spot_ok=True,
            tenant=dice.choice(["t0", "t1"]),
            **({"current_pool": dice.choice(pools)["name"]} if dice.random() < 0.3 else {}),
        )
        for index in range(dice.randint(1, 6))
    ]


@pytest.mark.parametrize("seed", range(2000, 2100))
def test_any_amount_of_lower_work_unplaces_nothing_above_it(seed: int) -> None:
    dice = random.Random(seed)
    document = a_document(seed)
    document["objective"] = {"mode": "place_first", "fragmentation_usd_per_node": 3}
    for job in document["jobs"]:
        job["priority"] += 1
    alone = decide(parse_problem(json.dumps(document)))
    crowded = copy_of(document)
    crowded["jobs"] = lower_work(dice, document["pools"]) + crowded["jobs"]
    plan = decide(parse_problem(json.dumps(crowded)))
    assert {level: plan.placed[level] for level in alone.placed} == alone.placed


@pytest.mark.parametrize("baseline", Baseline)
def test_a_floor_places_the_same_copies_of_higher_tiers_whatever_comes_below(
    baseline: Baseline,
) -> None:
    document = an_instance(Size(20, 1500, 200, 2.0), 4, "place_first")
    highest = [job for job in document["jobs"] if job["priority"] >= 2]
    few = decide_simply(problem_from_json({**document, "jobs": highest}), baseline)
    names = {job["id"] for job in highest}
    all_of_them = decide_simply(problem_from_json(document), baseline)
    assert few.assignments
    assert few.assignments == tuple(a for a in all_of_them.assignments if a.job in names)


# Looser limits ----------------------------------------------------------------------------------

LIMITS = (
    "max_rtt_ms", "deadline_h", "budget_usd", "regions", "max_price_usd_per_accelerator_hour",
    "accelerator_memory_gib", "extras_per_replica", "spread_max_per_cluster", "apart",
    "apart_region",
    "migration_usd", "latency_usd_per_ms", "value_of_time_usd_per_h",
)  # fmt: skip


def looser(document: Document) -> list[Document]:
    """The document with one thing at a time looser, or cheaper, than before."""
    found = []
    for index, job in enumerate(document["jobs"]):
        for name in LIMITS:
            if name in job and not (name == "migration_usd" and not job[name]):
                found.append(copy_of(document))
                del found[-1]["jobs"][index][name]
        found.append(copy_of(document))
        found[-1]["jobs"][index]["spot_ok"] = True
    for index, pool in enumerate(document["pools"]):
        for name in ("maintenance", "preemptions_per_h", "free_cpus", "free_memory_gib"):
            if name in pool:
                found.append(copy_of(document))
                del found[-1]["pools"][index][name]
        found.append(copy_of(document))
        found[-1]["pools"][index]["extras"] = {"licence": 99}
        if "queue" in pool:
            found.append(copy_of(document))
            found[-1]["pools"][index]["queue"]["max_pending"] += 1
    for index in range(len(document["tenants"])):
        found.append(copy_of(document))
        found[-1]["tenants"][index] = {"name": document["tenants"][index]["name"]}
    return found


@pytest.mark.parametrize("seed", range(3000, 3060))
def test_one_limit_looser_never_makes_the_optimum_worse(seed: int) -> None:
    document = a_document(seed)
    before = rank(document)
    for other in looser(document):
        after = rank(other)
        assert after >= before or same(before, after)


@pytest.mark.parametrize("name", LIFTS)
def test_without_a_constraint_the_optimum_is_never_worse(name: str) -> None:
    for seed in range(40):
        document = drawn(name, seed)
        lifted = copy_of(document)
        LIFTS[name](lifted)
        if lifted != document:
            before, after = rank(document), rank(lifted)
            assert after >= before or same(before, after), f"seed {seed}"


@pytest.mark.parametrize("seed", range(3100, 3140))
def test_a_faster_link_never_makes_the_optimum_worse(seed: int) -> None:
    """Where only time decides: an earlier start may fall into a dearer hour, or before
    maintenance."""
    dice = random.Random(seed)
    document = a_document(seed)
    for pool in document["pools"]:
        for name in ("prices", "maintenance"):
            pool.pop(name, None)
    regions = range(len(document["regions"]))
    speeds = [0.0005, 0.01, 1]
    document["bandwidth_gbps"] = [[dice.choice(speeds) for _ in regions] for _ in regions]
    for job in document["jobs"]:
        if not job.get("data_regions"):
            job.setdefault("data_region", dice.choice(document["regions"]))
        job.setdefault("input_gb", dice.choice([1, 50]))
        job.setdefault("value_of_time_usd_per_h", dice.choice([0, 2]))
        job.setdefault("deadline_h", dice.choice([3, 300]))
    before = rank(document)
    for start in regions:
        for end in regions:
            other = copy_of(document)
            other["bandwidth_gbps"][start][end] *= 10
            after = rank(other)
            assert after >= before or same(before, after)


# Made to break things ----------------------------------------------------------------------------


def decided(**changes: Any) -> Plan:
    problem = parse_problem(json.dumps(a_problem(**changes)))
    plan = decide(problem, Budget(cpu_s=2))
    assert verify(problem, plan) == ()
    return plan


EXTREMES: dict[str, Document] = {
    "an endless queue": {
        "pools": [a_pool(queue={"start_s": HUGE, "max_pending": HUGE})],
        "jobs": [a_job(count=HUGE), a_job("gang", replicas=HUGE)],
    },
    "a trickle of bandwidth": {
        "bandwidth_gbps": [[1e-300, HUGE], [HUGE, 1e-300]],
        "jobs": [a_job(data_region="east", input_gb=HUGE, value_of_time_usd_per_h=HUGE)],
    },
    "prices that jump": {
        "pools": [
            a_pool(
                prices=[
                    {"from_h": 0, "to_h": 1e-300, "price_usd_per_accelerator_hour": HUGE},
                    {"from_h": 1, "to_h": HUGE, "price_usd_per_accelerator_hour": 1e-300},
                ]
            )
        ],
        "jobs": [a_job(runtime_h=1e-300), a_job("long", runtime_h=HUGE)],
    },
    "maintenance for ever": {
        "pools": [a_pool(maintenance=[{"from_h": 1e-300, "to_h": HUGE}])],
        "jobs": [a_job(max_runtime_h=HUGE)],
    },
    "thrown out all the time": {
        "pools": [a_pool(preemptions_per_h=HUGE)],
        "jobs": [a_job(runtime_h=HUGE), a_job("b", checkpoint_h=1e-300)],
    },
    "all the licences there are": {
        "pools": [a_pool(extras={"x": HUGE, "y": 0}, free_nodes={"8": HUGE})],
        "jobs": [
            a_job(count=HUGE, extras_per_replica={"x": 1}),
            a_job("b", count=HUGE, extras_per_replica={"x": 3, "y": 1}),
        ],
    },
    "spread over nothing": {
        "pools": [a_pool(free_nodes={"8": HUGE})],
        "jobs": [
            a_job(count=HUGE, spread_max_per_cluster=HUGE),
            a_job("b", count=HUGE, apart="x"),
        ],
    },
    "one giant gang beside small ones": {
        "jobs": [a_job("giant", replicas=HUGE // 8, accelerators_per_replica=8, priority=1)]
        + [a_job(f"j{n}", accelerators_per_replica=n) for n in range(1, 9)],
    },
    "zero of everything": {
        "pools": [
            a_pool(free_nodes={}, free_cpus=0, free_memory_gib=0, extras={}),
            a_pool("p1", free_nodes={"0": 9}, queue={"start_s": 0, "max_pending": 0}),
        ],
        "tenants": [{"name": "t0", "quota_accelerators": 0, "cluster_quota": {"c0": 0}}],
        "jobs": [a_job(count=3), a_job("running", current_pool="p0", lost_work_usd=HUGE)],
    },
    "nothing at all": {"pools": [], "jobs": [a_job(count=5)], "clusters": []},
}


@pytest.mark.parametrize("mode", ["scalar", "place_first"])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_figures_get_a_verified_plan(name: str, mode: str) -> None:
    objective = scalar(HUGE) if mode == "scalar" else {"mode": mode}
    plan = decided(objective={**objective, "fragmentation_usd_per_node": 1e-3}, **EXTREMES[name])
    assert plan.cost_usd >= 0


@pytest.mark.parametrize("mode", ["scalar", "place_first"])
def test_thousands_of_pools_of_one_node_with_queues(mode: str) -> None:
    objective = scalar(50) if mode == "scalar" else {"mode": mode}
    pools = [
        a_pool(
            f"p{i}",
            free_nodes={"8": i % 2},
            price_usd_per_accelerator_hour=1 + i % 7,
            queue={"start_s": 60 * (i % 11), "max_pending": 1},
        )
        for i in range(5_000)
    ]
    jobs = [a_job(f"j{n}", count=400, accelerators_per_replica=n) for n in (1, 2, 8)]
    plan = decided(objective=objective, pools=pools, jobs=jobs)
    assert plan.placed == {0: 400 * 11}


@pytest.mark.parametrize("mode", ["scalar", "place_first"])
def test_all_jobs_and_all_pools_alike(mode: str) -> None:
    objective = scalar(50) if mode == "scalar" else {"mode": mode}
    plan = decided(
        objective=objective,
        pools=[a_pool(f"p{i}") for i in range(200)],
        jobs=[a_job(f"j{i}", accelerators_per_replica=3) for i in range(2_000)],
    )
    assert plan.placed == {0: 3 * 2 * 2 * 200}


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-1", "1e400"])
@pytest.mark.parametrize(
    "key", ["queue", "bandwidth_gbps", "preemptions_per_h", "max_runtime_h", "extras", "prices"]
)
def test_what_is_no_amount_is_refused_with_its_path(key: str, word: str) -> None:
    values: dict[str, Document] = {
        "queue": {"pools": [a_pool(queue={"start_s": "@", "max_pending": 1})]},
        "bandwidth_gbps": {"bandwidth_gbps": [["@", 1], [1, 1]]},
        "preemptions_per_h": {"pools": [a_pool(preemptions_per_h="@")]},
        "max_runtime_h": {"jobs": [a_job(max_runtime_h="@")]},
        "extras": {"pools": [a_pool(extras={"x": "@"})]},
        "prices": {
            "pools": [
                a_pool(
                    prices=[{"from_h": 0, "to_h": 1, "price_usd_per_accelerator_hour": "@"}]
                )
            ]
        },
    }
    text = json.dumps(a_problem(**values[key])).replace('"@"', word)
    with pytest.raises(ProblemError, match=key):
        parse_problem(text)


def test_a_gang_with_more_extras_than_can_be_counted_is_refused() -> None:
    job = a_job(replicas=HUGE, extras_per_replica={"x": HUGE})
    with pytest.raises(ProblemError, match=r"extras_per_replica"):
        parse_problem(json.dumps(a_problem(jobs=[job])))
