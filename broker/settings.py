"""Settings of a broker: read once from a YAML file and the environment, passed on in slices.

`TRADEWIND_BROKER_<NAME>` overrides a key of the file (upper case, lists separated by commas).
"""

from __future__ import annotations

import os
import re
from datetime import date, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from broker.model.admission import AdmissionRules, MovingRules, Preempt
from broker.model.data import Link
from federation.front_names import SESSION_PREFIX, is_session_name
from federation.log_lines import LogFormat
from federation.units import parse_rfc3339_ms

PREFIX = "TRADEWIND_BROKER_"


class SettingsError(ValueError):
    """Settings that make no sense; the text names file, key, value and remedy."""


def _loopback(value: str) -> str:
    """An address only this machine reaches: what is served there asks for no token."""
    host, _, port = value.rpartition(":")
    if value and (host.strip("[]") not in ("127.0.0.1", "::1", "localhost") or not port.isdigit()):
        raise ValueError("host:port on loopback, such as 127.0.0.1:9464")
    return value


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _instant(value: object) -> str:
    """RFC 3339 text of a day, or of a time with its offset; YAML reads either as such by itself."""
    if isinstance(value, datetime):
        value = value.isoformat()
    elif isinstance(value, date) or (isinstance(value, str) and _DAY.fullmatch(value)):
        value = f"{value}T00:00:00Z"
    parse_rfc3339_ms(value)
    return str(value)


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class TypedRtt(BaseModel):
    """A round trip between two regions that an operator typed in, used where none was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    a: str
    b: str
    rtt_ms: Annotated[float, Field(gt=0, le=2000)]
    source: str
    as_of: Annotated[str, BeforeValidator(_instant)]


class TypedLink(BaseModel):
    """What data costs from a region to another, as an operator typed it in."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: Annotated[str, Field(alias="from")]
    to: str
    egress_usd_per_gb: Annotated[float, Field(ge=0, le=100)]
    gbps: Annotated[float, Field(ge=0, le=100_000)] = 0.0
    """10^9 bits a second; 0 = not known."""
    source: str
    as_of: Annotated[str, BeforeValidator(_instant)]


class BrokerSettings(BaseModel):
    """One broker replica."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "broker-1"
    """Unique among the replicas of a federation."""
    federation: str = "tradewind"
    """Part of every certificate this federation issues."""
    state_dir: Path = Path("/var/lib/tradewind")
    """Keys, ledger, blobs and logs lie below it."""
    etcd_endpoints: tuple[str, ...] = ("https://127.0.0.1:2379",)
    etcd_ca_file: Path | None = None
    """None = the federation's own CA, with the client certificate the keyring keeps."""
    etcd_server_name: str = ""
    api_listen: str = "127.0.0.1:8443"
    session_listen: str = "127.0.0.1:8444"
    front_listen: str = ""
    """host:port of one port for both listeners; empty = none, each is reached on its own."""
    server_names: tuple[str, ...] = ("localhost", "127.0.0.1")
    """Names in the certificate of both listeners."""
    api_url: str = ""
    """How clients and agents reach the API; empty = https:// and `api_listen`."""
    session_addresses: tuple[str, ...] = ()
    """How agents reach the sessions of this replica; empty = `session_listen`."""
    ledger_url: str = ""
    """SQLAlchemy URL; empty = SQLite in the state directory."""
    leader_ttl_s: Annotated[float, Field(gt=0.2, le=300)] = 6.0
    decide_cpu_s: Annotated[float, Field(gt=0.01, le=600)] = 2.0
    price_cpu_s: Annotated[float, Field(gt=0.01, le=600)] = 10.0
    """Of a look for fresh prices, beside the decisions, where the problem is large."""
    keep_ended_s: Annotated[float, Field(ge=1, le=7 * 86400)] = 600.0
    decisions_kept: Annotated[int, Field(ge=0, le=100_000)] = 200
    """So many decisions are stored with their problems; 0 = none."""
    decisions_mib: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """And at most so many MiB of them, compressed."""
    heartbeat_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    typed_rtt: tuple[TypedRtt, ...] = ()
    links: tuple[TypedLink, ...] = ()
    """Ways of data between regions; one that is not listed is not taken."""
    share_half_life_s: Annotated[float, Field(ge=60, le=365 * 86400)] = 7 * 86400.0
    """After so long what a tenant had counts half against it."""
    patience_s: Annotated[float, Field(ge=1, le=31 * 86400)] = 600.0
    """A job that waited longer goes before others whose turn it is."""
    gang_hold_max_s: Annotated[float, Field(ge=0, le=31 * 86400)] = 86400.0
    """For how long at most capacity is kept for a gang that waits for it; 0 = never."""
    gang_recovery_s: Annotated[float, Field(ge=0, le=86400)] = 300.0
    """For how long a gang that lost a member keeps its place; 0 = it does not."""
    preempt: Preempt = Preempt.NEVER
    """`lower_priority`: a job may stop those of lower priority; `never`: only who borrowed is."""
    disturbed_share_max: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Of all accelerators in use, what one cycle may take from its users without an operator."""
    moves_max: Annotated[int, Field(ge=0, le=1_000)] = 5
    """So many running jobs at most move to a better place at one look; 0 = none ever."""
    move_look_s: Annotated[float, Field(ge=1, le=86400)] = 60.0
    """So often at most is looked for moves."""
    move_gap_s: Annotated[float, Field(ge=0, le=31 * 86400)] = 3600.0
    """A job moves no sooner than so long after its last move."""
    move_saving_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Of what the rest of its run costs where it is, what a move must save beyond its own cost."""
    move_saving_min_usd: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """And so much at least."""
    log_format: LogFormat | None = None
    """json or text; None = text on a terminal, JSON elsewhere."""
    metrics_listen: Annotated[str, AfterValidator(_loopback)] = ""
    """host:port on loopback where figures are served without a token; empty = only by the API."""

    @model_validator(mode="after")
    def _front_has_a_name(self) -> Self:
        if self.front_listen and not self._dns_names:
            raise ValueError("front_listen needs a DNS name in server_names")
        if not self.front_listen and any(map(is_session_name, self.session_addresses)):
            raise ValueError("session_addresses: names that begin with session. need front_listen")
        return self

    @property
    def _dns_names(self) -> list[str]:
        return [name for name in self.server_names if not _is_ip(name)]

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names in the certificate of both listeners: behind a front also those of sessions."""
        if not self.front_listen:
            return self.server_names
        return (*self.server_names, *(SESSION_PREFIX + name for name in self._dns_names))

    def _at_front(self, prefix: str) -> str:
        return f"{prefix}{self._dns_names[0]}:{split_address(self.front_listen)[1]}"

    @property
    def keys_dir(self) -> Path:
        """Private keys, 0700."""
        return self.state_dir / "keys"

    def etcd_ca(self) -> bytes:
        """The CA of etcd's members (PEM); empty = our own. Raises SettingsError."""
        if self.etcd_ca_file is None:
            return b""
        try:
            return self.etcd_ca_file.read_bytes()
        except OSError as problem:
            raise SettingsError(
                f"etcd_ca_file: {self.etcd_ca_file} cannot be read: {problem.strerror}; "
                "deploy/etcd/certificates.sh makes it, and everybody may read it"
            ) from problem

    @property
    def public_api_url(self) -> str:
        """Where the API is reached."""
        own = self._at_front("") if self.front_listen else self.api_listen
        return self.api_url or f"https://{own}"

    @property
    def public_session_addresses(self) -> tuple[str, ...]:
        """Where sessions are opened."""
        own = self._at_front(SESSION_PREFIX) if self.front_listen else self.session_listen
        return self.session_addresses or (own,)

    @property
    def database_url(self) -> str:
        """The ledger's database."""
        return self.ledger_url or f"sqlite:///{self.state_dir / 'ledger.db'}"

    def admission_rules(self) -> AdmissionRules:
        """The rules of admission."""
        return AdmissionRules(
            half_life_s=self.share_half_life_s,
            patience_s=self.patience_s,
            hold_max_s=self.gang_hold_max_s,
            recovery_s=self.gang_recovery_s,
            preempt=self.preempt,
            disturbed_share_max=self.disturbed_share_max,
            moving=MovingRules(
                most=self.moves_max,
                look_s=self.move_look_s,
                gap_s=self.move_gap_s,
                saving_share=self.move_saving_share,
                saving_min_usd=self.move_saving_min_usd,
            ),
        )

    def data_links(self) -> dict[tuple[str, str], Link]:
        """The links by (from, to). Raises ValueError for a day that is none."""
        return {
            (link.from_, link.to): Link(
                link.egress_usd_per_gb, link.gbps, link.source, parse_rfc3339_ms(link.as_of)
            )
            for link in self.links
        }

    def typed_rtt_ms(self) -> dict[tuple[str, str], float]:
        """Typed round trips by region pair, in the order typed."""
        return {(entry.a, entry.b): entry.rtt_ms for entry in self.typed_rtt}


def read_settings(path: Path | None) -> BrokerSettings:
    """Settings from a file (None = defaults) and the environment. Raises `SettingsError`."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:  # YAML reads days: some are none
            raise SettingsError(f"{path}: {error}") from error
        if loaded is not None and not isinstance(loaded, dict):
            raise SettingsError(f"{path}: a mapping of settings is expected")
        values = dict(loaded or {})
    for name, text in os.environ.items():
        if name.startswith(PREFIX):
            key = name[len(PREFIX) :].lower()
            field = BrokerSettings.model_fields.get(key)
            many = field is not None and "tuple" in str(field.annotation)
            values[key] = tuple(text.split(",")) if many else text
    try:
        return BrokerSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(
            f"{path or 'environment'}: {where}: {first['msg']} (got {first['input']!r})"
        ) from error


def otel_environ() -> dict[str, str]:
    """The standard OTEL_* variables, which alone decide whether and where traces go."""
    return {name: text for name, text in os.environ.items() if name.startswith("OTEL_")}


def split_address(text: str) -> tuple[str, int]:
    """`host:port` as its parts. Raises `SettingsError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise SettingsError(f"{text!r} is not host:port, such as 127.0.0.1:8443")
    return host.strip("[]") or "127.0.0.1", int(port)
