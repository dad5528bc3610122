"""The options of `tradewind whatif` as the changes they mean. Pure."""

from __future__ import annotations

from typing import Any

from broker.cli.exits import Exit, Failure


def read_price(text: str) -> dict[str, Any]:
    """TARGET=USD or TARGET=xFACTOR. Raises Failure."""
    target, equals, figure = text.rpartition("=")
    try:
        value = float(figure.removeprefix("x"))
        if not equals or not target or not 0 <= value < 1e6:
            raise ValueError
    except ValueError:
        remedy = "write --price east/h100=2.10, or --price H100=x1.5"
        raise Failure(Exit.BAD_INPUT, f"--price {text!r} is not TARGET=USD", remedy) from None
    return {"target": target, "factor" if figure.startswith("x") else "usd": value}


def read_quota(text: str) -> dict[str, Any]:
    """TENANT[@CLUSTER]=N or =none. Raises Failure."""
    named, equals, figure = text.rpartition("=")
    tenant, _, cluster = named.partition("@")
    whole = figure.isascii() and figure.isdigit() and len(figure) < 9
    if not equals or not tenant or not (whole or figure == "none"):
        remedy = "write --quota physics=16, --quota physics@east=8, or =none"
        raise Failure(Exit.BAD_INPUT, f"--quota {text!r} is not TENANT=N", remedy)
    return {
        "tenant": tenant,
        "accelerators": int(figure) if whole else None,
        **({"cluster": cluster} if cluster else {}),
    }


def split_count(text: str) -> tuple[str, int]:
    """FILE or FILE:N. Raises Failure."""
    file, colon, figure = text.rpartition(":")
    if not colon or not (figure.isascii() and figure.isdigit()):
        return text, 1
    if not 1 <= int(figure[:9]) <= 1_000:
        raise Failure(Exit.BAD_INPUT, f"--add {text!r}: 1 to 1000 times", "lower the number")
    return file, int(figure)
