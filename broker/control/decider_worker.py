"""The deciding process: questions on standard input, answers on standard output, until the input
ends. Solvers may abort or hang here; the broker lives on.

Run as `python -m broker.control.decider_worker [NICENESS]`.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
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
from broker.decide import cpsat
from broker.decide.decision import Budget, NoVerifiedPlan, decide
from broker.decide.prepared import Prepared, prepare


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the source ends."""
    last: Prepared | None = None
    while True:
        header = source.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return
        question: Question = unpacked(source.read(body_bytes(header)))
        reply, last = _answer(question, last)
        sink.write(packed(reply))
        sink.flush()
        gc.collect()


def _answer(question: Question, last: Prepared | None) -> tuple[Reply, Prepared | None]:
    problem = question.problem
    if problem is None:
        cpsat.load()
        return Reply(None), last
    before = _cpu_s()
    prepared = prepare(problem, last if question.in_line else None)
    try:
        plan = decide(
            problem, Budget(cpu_s=question.cpu_s), warm=question.warm, prepared=prepared
        )
        reply = Reply(plan, _cpu_s() - before)
    except NoVerifiedPlan as error:
        reply = Reply(None, _cpu_s() - before, str(error))
    return reply, prepared if question.in_line else last


def _cpu_s() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


if __name__ == "__main__":
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the broker's terminal: the broker ends us
    os.nice(int(sys.argv[1]) if sys.argv[1:] else 0)
    gc.freeze()
    serve(sys.stdin.buffer, answers)
