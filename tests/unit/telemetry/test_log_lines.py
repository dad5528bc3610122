"""Log lines: the same fields in both formats, and no secret in either."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from federation.log_lines import JsonLines, TextLines, fields, put_fields, without_secrets

TOKEN = "tw_abc123_" + "S" * 43
INVITATION = "tw-join_" + "J" * 43
KEY = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEI\n-----END PRIVATE KEY-----"


def line(formatter: logging.Formatter, text: str, *words: object, **more: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log = logging.Logger("tradewind.test")
    log.addHandler(handler)
    log.info(text, *words, extra=more)
    return stream.getvalue()


def test_a_json_line_holds_fields_of_the_line_and_of_what_is_around_it() -> None:
    with fields(epoch=4, cluster="us-east"):
        told = json.loads(line(JsonLines(), "attempt %s", "ended", job="j1", cluster="eu-west"))
    ts = told.pop("ts")
    assert told == {
        "level": "info", "logger": "tradewind.test", "message": "attempt ended", "epoch": 4,
        "cluster": "eu-west", "job": "j1",
    }  # fmt: skip
    assert ts.endswith("Z") and len(ts) == len("2026-11-30T13:10:00.123Z")
    assert "epoch" not in json.loads(line(JsonLines(), "later"))


def test_a_text_line_reads_the_same() -> None:
    with fields(epoch=4):
        assert line(TextLines(), "ended", job="j1").rstrip().endswith(
            "INFO tradewind.test: ended [epoch=4 job=j1]"
        )


async def test_tasks_begun_inside_keep_their_fields() -> None:
    async def told() -> str:
        put_fields(attempt="j1-1")
        await asyncio.sleep(0)
        return line(TextLines(), "x")

    with fields(epoch=9):
        task = asyncio.create_task(told())
    assert "[epoch=9 attempt=j1-1]" in await task
    assert "epoch" not in line(TextLines(), "x")


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()], ids=["json", "text"])
@pytest.mark.parametrize(
    ("secret", "hidden"),
    [
        (TOKEN, "S" * 8), (INVITATION, "J" * 8), (KEY, "MC4CAQ"),
        ("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x", "eyJhbG"),
        ("postgresql+psycopg://ledger:hunter22@db/tradewind", "hunter22"),
    ],
)  # fmt: skip
def test_no_secret_reaches_a_line(
    formatter: logging.Formatter, secret: str, hidden: str
) -> None:
    told = line(formatter, "sent %s", secret, detail=f"as {secret}", token="anything-at-all")
    assert hidden not in told and "anything-at-all" not in told and "***" in told


def test_no_secret_reaches_a_line_by_a_traceback() -> None:
    stream = io.StringIO()
    log = logging.Logger("tradewind.test")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    try:
        raise ValueError(f"no such token: {TOKEN}")
    except ValueError:
        log.exception("failed")
    told = json.loads(stream.getvalue())
    assert "ValueError" in told["error"] and "SSSS" not in stream.getvalue()


def test_what_is_no_secret_stays_readable() -> None:
    for text in (
        "the ticket is malformed", "attempt j0k2m4n6p8q0r2s4-1 of tw_abc123 is over",
        "https://127.0.0.1:8443", "bearer of bad news", "tradewind_jobs_queued",
    ):  # fmt: skip
        assert without_secrets(text) == text
