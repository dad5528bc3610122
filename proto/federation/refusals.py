"""Refusals: why something did not happen, as a value with a closed set of reasons.

The same codes and the same text reach the API, the command line, the audit and the simulator.
Each code says what a broker may do about it: nothing (`PERMANENT`), ask the same place again
later (`RETRY`), or ask another place (`ELSEWHERE`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Disposition(StrEnum):
    """What may be done after a refusal."""

    PERMANENT = "permanent"
    """The same request can never succeed anywhere; it has to change."""
    RETRY = "retry"
    """The same request may succeed at the same place later."""
    ELSEWHERE = "elsewhere"
    """This place will not take it as things stand; another one may."""


class RefusalCode(StrEnum):
    """Every reason there is. Placement reasons first, then those of dispatch."""

    # Placement: what a pool or cluster is.
    WRONG_ACCELERATOR = "wrong_accelerator"
    SPOT_NOT_ALLOWED = "spot_not_allowed"
    REGION_NOT_ALLOWED = "region_not_allowed"
    CLUSTER_NOT_ALLOWED = "cluster_not_allowed"
    POLICY_DENIED = "policy_denied"
    ROUND_TRIP_TOO_LONG = "round_trip_too_long"
    ROUND_TRIP_UNKNOWN = "round_trip_unknown"
    DEADLINE_TOO_SOON = "deadline_too_soon"
    OVER_BUDGET = "over_budget"
    PRICE_CAP = "price_cap"
    PRICE_UNKNOWN = "price_unknown"
    ISOLATION_TOO_WEAK = "isolation_too_weak"
    ACCELERATOR_MEMORY = "accelerator_memory"
    MISSING_FEATURES = "missing_features"
    NO_FENCE = "no_fence"
    TOPOLOGY = "topology"
    NO_RACK = "no_rack"
    RACK_TOO_SMALL = "rack_too_small"
    POOL_TOO_SMALL = "pool_too_small"
    REPLICA_TOO_LARGE = "replica_too_large"
    GANG_TOO_LARGE = "gang_too_large"
    RUNTIME_TOO_LONG = "runtime_too_long"
    # Placement: how things stand now.
    NO_CAPACITY = "no_capacity"
    NO_CPUS = "no_cpus"
    NO_MEMORY = "no_memory"
    TENANT_QUOTA = "tenant_quota"
    CLUSTER_QUOTA = "cluster_quota"
    QUEUE_FULL = "queue_full"
    NO_QUEUE = "no_queue"
    LATER_FULL = "later_full"
    DEFER_LIMIT = "defer_limit"
    NO_EXTRAS = "no_extras"
    SPREAD_LIMIT = "spread_limit"
    KEPT_APART = "kept_apart"
    REGION_TAKEN = "region_taken"
    NODES_TAKEN = "nodes_taken"
    BORROW_LIMIT = "borrow_limit"
    FAIR_SHARE = "fair_share"
    CAPACITY_HELD = "capacity_held"
    VALUE_BELOW_COST = "value_below_cost"
    NOT_CHOSEN = "not_chosen"
    DEFERRED = "deferred"
    MAINTENANCE = "maintenance"
    CLUSTER_UNREACHABLE = "cluster_unreachable"
    CAPACITY_STALE = "capacity_stale"
    CAPACITY_UNKNOWN = "capacity_unknown"
    DATA_MISSING = "data_missing"
    DATA_RESIDENCY = "data_residency"
    HELD = "held"
    DEPENDENCY_PENDING = "dependency_pending"
    DEPENDENCY_FAILED = "dependency_failed"
    NO_CLUSTERS = "no_clusters"
    # Dispatch: what a site answers.
    TICKET_INVALID = "ticket_invalid"
    TICKET_EXPIRED = "ticket_expired"
    STALE_EPOCH = "stale_epoch"
    OUT_OF_ORDER = "out_of_order"
    WRONG_CLUSTER = "wrong_cluster"
    SPEC_MISMATCH = "spec_mismatch"
    TENANT_NOT_ALLOWED = "tenant_not_allowed"
    USER_NOT_ALLOWED = "user_not_allowed"
    COMMAND_NOT_ALLOWED = "command_not_allowed"
    IMAGE_NOT_ALLOWED = "image_not_allowed"
    SIGNATURE_REQUIRED = "signature_required"
    UNSUPPORTED = "unsupported"
    CAPACITY_TAKEN = "capacity_taken"
    SITE_LIMIT = "site_limit"
    START_DELAY_EXCEEDED = "start_delay_exceeded"
    UNKNOWN_BLOB = "unknown_blob"
    BLOB_CORRUPT = "blob_corrupt"
    STAGE_FAILED = "stage_failed"
    SECRET_UNREADABLE = "secret_unreadable"
    SUBMIT_FAILED = "submit_failed"
    DISK_FULL = "disk_full"
    DRAINING = "draining"
    PAUSED = "paused"
    BLACKOUT = "blackout"
    BANNED = "banned"
    SHUTTING_DOWN = "shutting_down"
    FENCED = "fenced"

    @property
    def disposition(self) -> Disposition:
        """What may be done after a refusal with this code."""
        return _DISPOSITIONS[self]


_PERMANENT = (
    RefusalCode.DEPENDENCY_FAILED,
    RefusalCode.SPEC_MISMATCH,
    RefusalCode.SIGNATURE_REQUIRED,
    RefusalCode.BLOB_CORRUPT,
)
_RETRY = (
    RefusalCode.NO_CAPACITY,
    RefusalCode.NO_CPUS,
    RefusalCode.NO_MEMORY,
    RefusalCode.TENANT_QUOTA,
    RefusalCode.CLUSTER_QUOTA,
    RefusalCode.QUEUE_FULL,
    RefusalCode.LATER_FULL,
    RefusalCode.NO_EXTRAS,
    RefusalCode.SPREAD_LIMIT,
    RefusalCode.KEPT_APART,
    RefusalCode.REGION_TAKEN,
    RefusalCode.NODES_TAKEN,
    RefusalCode.RACK_TOO_SMALL,
    RefusalCode.POOL_TOO_SMALL,
    RefusalCode.BORROW_LIMIT,
    RefusalCode.FAIR_SHARE,
    RefusalCode.CAPACITY_HELD,
    RefusalCode.VALUE_BELOW_COST,
    RefusalCode.NOT_CHOSEN,
    RefusalCode.DEFERRED,
    RefusalCode.HELD,
    RefusalCode.DEPENDENCY_PENDING,
    RefusalCode.NO_CLUSTERS,
    RefusalCode.TICKET_INVALID,
    RefusalCode.TICKET_EXPIRED,
    RefusalCode.STALE_EPOCH,
    RefusalCode.OUT_OF_ORDER,
    RefusalCode.UNKNOWN_BLOB,
    RefusalCode.SHUTTING_DOWN,
)
_DISPOSITIONS: dict[RefusalCode, Disposition] = (
    dict.fromkeys(RefusalCode, Disposition.ELSEWHERE)
    | dict.fromkeys(_PERMANENT, Disposition.PERMANENT)
    | dict.fromkeys(_RETRY, Disposition.RETRY)
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason. `subject` is what refused (a pool, cluster, tenant or attempt), `needed` and
    `available` the two sides that did not meet, with their units, `advice` the smallest change
    that would help; the last three may be empty."""

    code: RefusalCode
    subject: str
    needed: str = ""
    available: str = ""
    advice: str = ""

    @property
    def disposition(self) -> Disposition:
        """What may be done about it."""
        return self.code.disposition

    @property
    def text(self) -> str:
        """One line for people."""
        line = f"{self.subject}: {self.code.replace('_', ' ')}"
        if self.needed and self.available:
            line += f": needs {self.needed}, has {self.available}"
        elif self.needed:
            line += f": needs {self.needed}"
        elif self.available:
            line += f": {self.available}"
        return f"{line}; {self.advice}" if self.advice else line
