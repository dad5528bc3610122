"""The programs of the demonstration: small, real, and each leaving a line for every start.

    work.py pi SECONDS        estimates pi by throwing darts
    work.py primes SECONDS    counts primes
    work.py digest SECONDS    hashes what it hashed
    work.py reduce SECONDS    a gang: ranks add up a vector over TCP, round after round

They compute a little and pause a lot, so that many of them run beside each other on a laptop.
"""

import hashlib
import os
import random
import socket
import sys
import time
from collections.abc import Iterator

STEP_S = 0.25


def mark_start() -> None:
    """One line per start of a process: the proof that nothing ran twice."""
    line = "{TRADEWIND_ATTEMPT} {TRADEWIND_TASK} {TRADEWIND_RANK}\n".format(**os.environ)
    file = os.open(os.environ["STARTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode())
    os.close(file)


def steps(seconds: float) -> Iterator[int]:
    """Steps until so many seconds have passed, with pauses between."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1
        time.sleep(STEP_S)


def pi(seconds: float) -> str:
    """Throw darts."""
    inside = thrown = 0
    for _ in steps(seconds):
        for _ in range(5000):
            thrown += 1
            inside += random.random() ** 2 + random.random() ** 2 < 1
    return f"pi is about {4 * inside / thrown:.4f} after {thrown} darts"


def primes(seconds: float) -> str:
    """Count them by trial division."""
    found, candidate = [2], 3
    for _ in steps(seconds):
        for _ in range(500):
            if all(candidate % p for p in found if p * p <= candidate):
                found.append(candidate)
            candidate += 2
    return f"{len(found)} primes up to {found[-1]}"


def digest(seconds: float) -> str:
    """A chain of SHA-256."""
    value = b"tradewind"
    for _ in steps(seconds):
        for _ in range(2000):
            value = hashlib.sha256(value).digest()
    return f"digest {value.hex()[:16]}"


def reduce(seconds: float) -> str:
    """Rank 0 adds up what the others send and tells them the sum, as training does each step."""
    rank, size = int(os.environ["TRADEWIND_RANK"]), int(os.environ["TRADEWIND_WORLD_SIZE"])
    host, _, port = os.environ["TRADEWIND_HEAD_ADDRESS"].rpartition(":")
    return head((host, int(port)), size, seconds) if rank == 0 else member((host, int(port)), rank)


def head(address: tuple[str, int], size: int, seconds: float) -> str:
    """Rank 0: adds up and tells."""
    with socket.create_server(address) as server:
        members = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
    total = rounds = 0
    for number in steps(seconds):
        total = number + sum(int(member.readline()) for member in members)
        for member in members:
            member.write(f"{total}\n")
            member.flush()
        rounds += 1
    for member in members:
        member.readline()
        member.write("end\n")
        member.close()
    return f"{rounds} rounds with {size} ranks, last sum {total}"


def member(address: tuple[str, int], rank: int) -> str:
    """The other ranks: send and listen, until told that it is over."""
    for _ in range(100):
        try:
            connection = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.1)
    stream = connection.makefile("rw")
    rounds = 0
    while True:
        stream.write(f"{rank * 10 + rounds}\n")
        stream.flush()
        if stream.readline() in ("end\n", ""):
            return f"rank {rank}: {rounds} rounds"
        rounds += 1


if __name__ == "__main__":
    mark_start()
    result = {"pi": pi, "primes": primes, "digest": digest, "reduce": reduce}[sys.argv[1]](
        float(sys.argv[2])
    )
    print(result, flush=True)
    with open("result.txt", "a") as out:
        out.write(result + "\n")
