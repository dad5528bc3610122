"""`tradewind plan --problem FILE`: decide a problem in the public JSON form, without a broker."""

from __future__ import annotations

import gc
import json
import resource
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from broker.decide.answer import AnswerTooLarge, plan_to_json
from broker.decide.decision import Budget, NoVerifiedPlan, decide
from broker.decide.problem_file import ProblemError, parse_problem
from broker.model.plan import Plan
from broker.model.problem import Problem

_LARGEST_FILE_BYTES = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"


def run_plan_problem(path: str, budget_s: float, as_json: bool) -> int:
    """Decide the problem in a file (plain or gzip; "-" is standard input) and print the answer.

    `budget_s` is the CPU time in seconds that becomes a deterministic limit. Returns the exit code:
    0 when a verified plan was printed, 2 for a bad problem or file, 3 for a fault of ours.
    """
    try:
        problem = parse_problem(read_problem_bytes(path))
    except (ProblemError, OSError, EOFError, zlib.error) as error:
        _complain(f"{path}: {error}")
        return 2
    # The problem lives as long as the process: no collection needs to look at it again.
    gc.freeze()
    before = cpu_time_s()
    try:
        plan = decide(problem, Budget(cpu_s=budget_s))
        cpu_s = cpu_time_s() - before
        answer = plan_to_json(problem, plan, round(cpu_s, 6))
    except AnswerTooLarge as error:
        _complain(f"{path}: pools: {error}")
        return 2
    except NoVerifiedPlan as error:
        _complain(f"{path}: {error}")
        return 3
    for note in plan.notes:
        _complain(f"note: {note}")
    if as_json:
        sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    else:
        sys.stdout.write("\n".join(_table(problem, plan, cpu_s)) + "\n")
    return 0


def cpu_time_s() -> float:
    """User and system CPU time of this process and its ended children in seconds."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(w)[:2]) for w in who)


def read_problem_bytes(path: str) -> bytes:
    """The bytes of a file, plain or gzip; "-" is standard input. Raises OSError, EOFError,
    zlib.error, `ProblemError`."""
    if path == "-":
        data = sys.stdin.buffer.read(_LARGEST_FILE_BYTES + 1)
    else:
        with Path(path).open("rb") as stream:
            data = stream.read(_LARGEST_FILE_BYTES + 1)
    if data.startswith(_GZIP_MAGIC):
        stream_object = zlib.decompressobj(wbits=31)
        data = stream_object.decompress(data, _LARGEST_FILE_BYTES + 1)
        if not stream_object.eof and len(data) <= _LARGEST_FILE_BYTES:
            raise EOFError("the gzip file is cut short")
    if len(data) > _LARGEST_FILE_BYTES:
        raise ProblemError("$", "the file is over 1 GiB")
    return data


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")


def _table(problem: Problem, plan: Plan, cpu_s: float) -> Iterator[str]:
    placed = sum(item.count for item in plan.assignments)
    copies = sum(job.count for job in problem.jobs)
    yield f"{plan.status.value}: {placed} of {copies} copies placed in {cpu_s:.2f} s CPU"
    gap = "unknown" if plan.gap is None else f"{plan.gap:.4%}"
    yield f"cost {plan.cost_usd:,.2f} USD, objective {plan.objective_usd:,.2f} USD, gap {gap}"
    for item in plan.assignments:
        yield f"  {item.job}  x{item.count}  -> {item.where}"
    for rest in plan.unplaced:
        yield f"  {rest.job}  x{rest.count}  waits: {rest.refusal.text}"
