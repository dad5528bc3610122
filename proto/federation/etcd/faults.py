"""What a failed call to etcd means: was it applied, and does trying again help."""

from __future__ import annotations

import grpc
import grpc.aio

from federation.kv import (
    AlreadyExists,
    AmbiguousCommit,
    Compacted,
    InvalidRequest,
    LeaseNotFound,
    PermissionDenied,
    RequestTooLarge,
    SpaceExhausted,
    StoreError,
    StoreUnavailable,
)

# Parts of messages that say the request was not carried out, whatever it was. Those of etcd come
# from checks it makes before proposing; those of gRPC from before a connection existed.
_NOT_APPLIED = (
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: unhealthy cluster",
    "revision of auth store is old",
    "failed to connect to all addresses",
    "dns resolution failed",
)

# Parts of messages that decide the class by themselves; first match counts.
_BY_TEXT: tuple[tuple[str, type[StoreError]], ...] = (
    ("required revision is a future revision", InvalidRequest),
    ("database space exceeded", SpaceExhausted),
    ("too many operations in txn", RequestTooLarge),
    ("request is too large", RequestTooLarge),
    ("received message larger than max", RequestTooLarge),
    ("requested lease not found", LeaseNotFound),
    ("already exists", AlreadyExists),
    ("already exist", AlreadyExists),
    ("permission denied", PermissionDenied),
    ("invalid auth token", PermissionDenied),
    ("user name is empty", PermissionDenied),
    ("authentication failed", PermissionDenied),
)

_BY_CODE: dict[grpc.StatusCode, type[StoreError]] = {
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: PermissionDenied,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: InvalidRequest,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequest,
}


def store_error(error: grpc.aio.AioRpcError, where: str, *, wrote: bool) -> StoreError:
    """The store's error for a failed call to member `where`.

    `StoreUnavailable` = certainly not applied (or a read): another member may be asked. For a
    write (`wrote`), whatever is not certain becomes `AmbiguousCommit`.
    """
    code, details = error.code(), error.details() or ""
    text = f"{where}: {code.name} {details}"
    said = details.lower()
    if any(part in said for part in _NOT_APPLIED):
        return StoreUnavailable(text)
    if "required revision has been compacted" in said:
        return Compacted(0)
    known = _known(code, said)
    if known is not None:
        return known(text)
    return AmbiguousCommit(text) if wrote else StoreUnavailable(text)


def _known(code: grpc.StatusCode, said: str) -> type[StoreError] | None:
    for part, kind in _BY_TEXT:
        if part in said:
            return kind
    return _BY_CODE.get(code)
