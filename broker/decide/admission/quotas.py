"""Quotas, and borrowing within a cohort.

A tenant may hold its quota. Within its cohort it may hold more, up to its borrowing limit, as long
as others of the cohort leave theirs unused and do not want it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Quota:
    """`accelerators` None = no limit. `borrow` None = whatever the cohort has."""

    tenant: str
    accelerators: int | None = None
    cohort: str = ""
    borrow: int | None = None


@dataclass(slots=True)
class Allowances:
    """What tenants may still take in this cycle. `own`: of their quotas; `lent`: by tenant what
    this cycle has lent it; `whole`: what a cohort may still take in all, which is less than its
    members' own while somebody has borrowed; `kept`: what of their own members still want."""

    own: dict[str, int] = field(default_factory=dict)
    lent: dict[str, int] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    cohort: dict[str, str] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    _wanted: dict[str, int] = field(default_factory=dict)
    _kept_in: dict[str, int] = field(default_factory=dict)
    _may_borrow: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(
        quotas: Iterable[Quota], held: Mapping[str, int], wanted: Mapping[str, int]
    ) -> Allowances:
        """`held`: accelerators by tenant; `wanted`: those that could start if there were room,
        which a tenant's own quota is kept for before others borrow it."""
        found = Allowances()
        for quota in quotas:
            if quota.accelerators is not None:
                name = quota.tenant
                found._add(quota, quota.accelerators, held.get(name, 0), wanted.get(name, 0))
        return found

    def _add(self, quota: Quota, most: int, has: int, wanted: int) -> None:
        name, cohort = quota.tenant, quota.cohort
        self.own[name] = max(most - has, 0)
        if not cohort:
            return
        borrowed = max(has - most, 0)
        self.cohort[name] = cohort
        self._may_borrow[name] = NO_LIMIT if quota.borrow is None else quota.borrow - borrowed
        self._wanted[name] = wanted
        self.whole[cohort] = self.whole.get(cohort, 0) + most - has
        self._keep(name)

    def _keep(self, name: str) -> None:
        """Reckon anew what is kept for a tenant, and in its cohort."""
        cohort, before = self.cohort[name], self.kept.get(name, 0)
        self.kept[name] = min(self.own[name], max(self._wanted[name], 0))
        self._kept_in[cohort] = self._kept_in.get(cohort, 0) + self.kept[name] - before

    def room(self, tenant: str) -> int:
        """Accelerators a tenant may still take."""
        own = self.own.get(tenant)
        if own is None:
            return NO_LIMIT
        cohort = self.cohort.get(tenant)
        if cohort is None:
            return own
        whole = self.whole[cohort]
        for_all = whole - self._kept_in[cohort] + self.kept[tenant]
        return max(min(own, whole), min(own + max(self._may_borrow[tenant], 0), for_all), 0)

    def take(self, tenant: str, accelerators: int) -> None:
        """A tenant takes so many: of its own first, the rest is lent."""
        own = self.own.get(tenant)
        if own is None:
            return
        mine = min(own, accelerators)
        more = accelerators - mine
        self.own[tenant] = own - mine
        self.taken[tenant] = self.taken.get(tenant, 0) + accelerators
        cohort = self.cohort.get(tenant)
        if cohort is None:
            return
        self.whole[cohort] -= accelerators
        self._wanted[tenant] -= accelerators
        self._keep(tenant)
        if more:
            self.lent[tenant] = self.lent.get(tenant, 0) + more
            self._may_borrow[tenant] -= more

    def limits(self) -> dict[str, int]:
        """What a decision may give each tenant with a quota: what it took here, and what is left
        of its own. Members of a cohort together never get more than is left of the cohort."""
        left = dict(self.whole)
        found: dict[str, int] = {}
        for name, own in self.own.items():
            more, cohort = own, self.cohort.get(name)
            if cohort is not None:
                more = max(min(own, left[cohort]), 0)
                left[cohort] -= more
            found[name] = self.taken.get(name, 0) + more
        return found

    def lends_no_more(self, tenant: str) -> bool:
        """Whether a tenant of a cohort is stopped by its borrowing limit, not by its cohort."""
        return tenant in self.cohort and self._may_borrow[tenant] <= 0
