"""Frames on the keeper's socket: four bytes of length, big-endian, then one JSON object."""

from __future__ import annotations

import json
import struct
from typing import Any

MAX_FRAME_BYTES = 32 * 2**20
_LENGTH = struct.Struct(">I")


class BadFrame(Exception):
    """The peer does not speak this protocol; the connection is of no use any more."""


def encode(body: dict[str, Any]) -> bytes:
    """One frame."""
    data = json.dumps(body, separators=(",", ":")).encode()
    if len(data) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(data)} bytes is too long")
    return _LENGTH.pack(len(data)) + data


class FrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The frames completed by `data`. Raises BadFrame."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame of {length} bytes is too long")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(_parse(bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return frames


def _parse(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise BadFrame(f"a frame that is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadFrame("a frame that is no JSON object")
    return body
