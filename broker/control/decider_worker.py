"""The deciding process: questions on standard input, answers on standard output, until the input
ends. Solvers may abort or hang here; the broker lives on.

Run as `python -m broker.control.decider_worker`.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from typing import BinaryIO

from broker.control.decider_frames import (
    HEADER_BYTES,
    Question,
    Reply,
    body_bytes,
    packed,
    unpacked,
)
from broker.decide.decision import Budget, NoVerifiedPlan, decide


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the source ends."""
    while True:
        header = source.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return
        question: Question = unpacked(source.read(body_bytes(header)))
        sink.write(packed(_answer(question)))
        sink.flush()
        gc.collect()


def _answer(question: Question) -> Reply:
    before = _cpu_s()
    try:
        plan = decide(question.problem, Budget(cpu_s=question.cpu_s), warm=question.warm)
    except NoVerifiedPlan as error:
        return Reply(None, _cpu_s() - before, str(error))
    return Reply(plan, _cpu_s() - before)


def _cpu_s() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


if __name__ == "__main__":
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, answers)
