"""Tokens: made once, shown once, and no more than their hash is kept."""

from __future__ import annotations

import asyncio

import pytest

from broker.control.tokens import (
    Grant,
    TokenBook,
    TokenError,
    create_token,
    ensure_operator_token,
    revoke_token,
    split_token,
)
from broker.control.viewing import Viewer
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from federation.ids import InvalidName
from federation.system import SystemClock, SystemIds

CLOCK, IDS = SystemClock(), SystemIds()


async def book_of(store: MemoryStore) -> TokenBook:
    values = {kv.key: kv.value for kv in (await store.range(keys.TOKENS)).kvs}
    return TokenBook(values.get)


async def test_a_token_opens_what_it_was_made_for() -> None:
    store = MemoryStore(CLOCK)
    text, token_id = await create_token(store, IDS, CLOCK, Grant("ada", ("red", "blue")))
    book, now_ms = await book_of(store), CLOCK.now_ms()
    viewer = book.verify(text, now_ms)
    assert viewer == Viewer("ada", ("red", "blue"), token_id=token_id)
    assert viewer.may_see("red") and not viewer.may_see("default")
    assert viewer.home_tenant == "red"
    kv = await store.get(keys.token(token_id))
    assert kv is not None and text.split("_")[-1].encode() not in kv.value


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "A", lambda t: t.upper()])
async def test_a_token_that_was_changed_opens_nothing(change: object) -> None:
    store = MemoryStore(CLOCK)
    text, _ = await create_token(store, IDS, CLOCK, Grant("ada", ("red",)))
    assert isinstance((await book_of(store)).verify(change(text), 0), str)  # type: ignore[operator]


async def test_a_wrong_secret_and_an_unknown_id_read_alike() -> None:
    store = MemoryStore(CLOCK)
    text, token_id = await create_token(store, IDS, CLOCK, Grant("ada", ("red",)))
    book = await book_of(store)
    wrong = f"tw_{token_id}_{'A' * 43}"
    assert book.verify(wrong, 0) == book.verify(f"tw_nobody_{'A' * 43}", 0)
    assert split_token(text) is not None


async def test_expiry_and_revocation() -> None:
    store = MemoryStore(CLOCK)
    text, token_id = await create_token(store, IDS, CLOCK, Grant("ada", ("red",), ttl_s=60))
    now_ms = CLOCK.now_ms()
    book = await book_of(store)
    assert isinstance(book.verify(text, now_ms), Viewer)
    assert book.verify(text, now_ms + 61_000) == "the token has expired"
    assert await revoke_token(store, token_id) and await revoke_token(store, token_id)
    assert (await book_of(store)).verify(text, now_ms) == "the token was revoked"
    assert not await revoke_token(store, "nobody")


async def test_of_brokers_that_start_together_one_gets_the_operators_token() -> None:
    store = MemoryStore(CLOCK)
    made = await asyncio.gather(*(ensure_operator_token(store, IDS, CLOCK) for _ in range(4)))
    texts = [text for text in made if text is not None]
    assert len(texts) == 1
    viewer = (await book_of(store)).verify(texts[0], CLOCK.now_ms())
    assert isinstance(viewer, Viewer) and viewer.operator and viewer.home_tenant == "default"
    await revoke_token(store, "operator")
    assert await ensure_operator_token(store, IDS, CLOCK) is None  # revoked is not absent


@pytest.mark.parametrize(
    ("subject", "tenants", "role", "error"),
    [
        ("", ("red",), "user", TokenError),
        ("a\nb", ("red",), "user", TokenError),
        ("ada", (), "user", TokenError),
        ("ada", ("red",), "root", TokenError),
        ("ada", ("Red",), "user", InvalidName),
    ],
)
def test_grants_that_make_no_sense(
    subject: str, tenants: tuple[str, ...], role: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Grant(subject, tenants, role)
