"""Who asks, and what an answer about logs looks like: values of the API and the shell."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Viewer:
    """The holder of a token: what they may see and for whom they may act.

    An operator sees and acts for every tenant; `tenants` is then empty.
    """

    subject: str
    tenants: tuple[str, ...] = ()
    operator: bool = False
    token_id: str = ""

    def may_see(self, tenant: str) -> bool:
        """Whether what belongs to `tenant` exists for this viewer."""
        return self.operator or tenant in self.tenants

    @property
    def home_tenant(self) -> str:
        """The tenant meant where none is named."""
        if self.operator or DEFAULT_TENANT in self.tenants or not self.tenants:
            return DEFAULT_TENANT
        return self.tenants[0]


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Bytes of one stream wanted: from `offset` (>= 0) at most `limit_bytes`, waiting up to
    `wait_ms` for more where there is none yet."""

    uid: str
    cluster: str
    stream: str
    offset: int
    limit_bytes: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes of one log stream from `offset` on.

    `total_bytes` is what the stream holds as far as known (None: nobody knows yet); `complete`
    means it will not grow. `waiting` says in one line why there is nothing yet, empty otherwise.
    `truncated`: the site or the broker dropped bytes beyond the cap.
    """

    data: bytes
    offset: int
    total_bytes: int | None = None
    complete: bool = False
    waiting: str = ""
    truncated: bool = False


class RegionUnreachable(Exception):
    """The site that would have to answer is silent; the text names it and since when."""

    def __init__(self, text: str, retry_after_s: float = 5.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
