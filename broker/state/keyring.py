"""The broker's keys: one private directory on disk, made on the first start, never in etcd.

    keyring.json        which federation, which ticket and MAC key is in use, retired public
    keys ca.pem              the CA that issues; ca-next.pem and ca-previous.pem while it is
    replaced server.pem          what API and session listeners show; reissued when due or names
    change etcd-client.pem     how the broker is known to etcd (common name `broker`)
    ticket-<kid>.key    Ed25519 seeds; mac-<kid>.key: MAC of admission

Ticket keys are published before they sign: agents are told of the signing key, the next one,
and the one before, so that a rotation voids no ticket in flight. The public half of every older
key stays readable for results of long jobs (`federation.tickets.read_ticket`). A CA is replaced
in three steps for the same reason: `introduce_ca` (trusted, does not issue), `promote_ca`
(issues), and `retire_ca` (no longer trusted), each at least one agent certificate's life after
the last.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from federation.certificates import (
    CertificateError,
    Credential,
    bundle,
    facts_of,
    issued_by,
    load_chain,
    server_names,
)
from federation.environment import Ids
from federation.issuing import issue_client, issue_server, make_ca
from federation.private_files import (
    PrivateFileError,
    read_private,
    refuse_shared,
    sync_directory,
    write_private,
)
from federation.tickets import TicketSigner

ETCD_USER = "broker"
RETIRED_KEYS_MAX = 64

_INDEX = "keyring.json"
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class KeyringError(Exception):
    """The keys cannot be used; the text is one line with the remedy."""


class Keyring:
    """All keys of one broker. Not safe for two processes that rotate at the same time."""

    def __init__(self, directory: Path, ids: Ids) -> None:
        """Load an existing directory; see `open`. Raises KeyringError."""
        self._directory = directory
        self._ids = ids
        self._index: dict[str, Any] = {}
        self._signers: dict[str, TicketSigner] = {}
        self._mac_keys: dict[str, bytes] = {}
        self.ca = Credential(b"", b"")
        self.ca_bundle = b""
        self.refresh()

    @classmethod
    def open(cls, directory: Path, federation: str, *, now_ms: int, ids: Ids) -> Keyring:
        """Load the keys under `directory`, or make them there in one step.

        Raises KeyringError when they are open to others, damaged, or of another federation.
        """
        if not directory.exists() or not any(directory.iterdir()):
            _create(directory, federation, now_ms, ids)
        keyring = cls(directory, ids)
        if keyring.federation != federation:
            raise KeyringError(
                f"{directory} holds the keys of federation {keyring.federation!r}, not of "
                f"{federation!r}; point the broker at another key directory"
            )
        return keyring

    @property
    def federation(self) -> str:
        """The name in every identity these keys issue."""
        return str(self._index["federation"])

    def refresh(self) -> None:
        """Read everything again: another process may have rotated. Raises KeyringError."""
        try:
            refuse_shared(self._directory)
            index = json.loads(read_private(self._directory / _INDEX))
            kids = [k for k in (index["previous"], index["signing"], index["next"]) if k]
            # The previous key only has to verify, so its private half is gone.
            signers = {k: self._signer(k) for k in kids if k != index["previous"]}
            macs = {k: bytes.fromhex(self._read(f"mac-{k}.key").decode()) for k in index["macs"]}
            ca = self._credential("ca.pem")
            others = [self._read(n) for n in ("ca-next.pem", "ca-previous.pem") if self._has(n)]
            trusted = bundle(ca.certificate_pem, *(_split(o).certificate_pem for o in others))
        except (PrivateFileError, CertificateError) as problem:
            raise KeyringError(str(problem)) from problem
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise KeyringError(
                f"the keys in {self._directory} are damaged or incomplete ({problem}); restore "
                "them from another broker or a backup"
            ) from problem
        self._index, self._signers, self._mac_keys = index, signers, macs
        self.ca, self.ca_bundle = ca, trusted

    # Tickets and admission ------------------------------------------------------------------

    @property
    def signer(self) -> TicketSigner:
        """Signs tickets now."""
        return self._signers[self._index["signing"]]

    @property
    def ticket_keys(self) -> dict[str, bytes]:
        """kid -> public key of the keys agents accept: signing, next, and the one before."""
        named = (self._index["signing"], self._index["next"], self._index["previous"])
        return {k: bytes.fromhex(self._index["public"][k]) for k in named if k}

    @property
    def known_ticket_keys(self) -> dict[str, bytes]:
        """kid -> public key of every key that ever signed, for `read_ticket` alone."""
        return {k: bytes.fromhex(v) for k, v in self._index["public"].items()}

    def rotate_ticket_key(self) -> str:
        """The next key signs from now on; returns its kid. Raises OSError."""
        seed = self._ids.token_bytes(32)
        fresh = TicketSigner.from_seed(seed)
        write_private(self._directory / f"ticket-{fresh.kid}.key", seed.hex().encode())
        old = self._index["signing"]
        public = {**self._index["public"], fresh.kid: fresh.public_key.hex()}
        for kid in list(public)[: max(0, len(public) - RETIRED_KEYS_MAX)]:
            del public[kid]
        self._write_index(
            {
                **self._index,
                "previous": old,
                "signing": self._index["next"],
                "next": fresh.kid,
                "public": public,
            }
        )
        (self._directory / f"ticket-{old}.key").unlink(missing_ok=True)
        self.refresh()
        return self.signer.kid

    @property
    def mac_key(self) -> tuple[str, bytes]:
        """(kid, key) the API uses at admission."""
        kid = self._index["macs"][-1]
        return kid, self._mac_keys[kid]

    def mac_key_of(self, kid: str) -> bytes | None:
        """The MAC key a record names; None when there is none: the record is not ours."""
        return self._mac_keys.get(kid)

    def rotate_mac_key(self) -> str:
        """Admissions from now on use a new key; older records keep theirs. Raises OSError."""
        kid = self._ids.token_bytes(8).hex()
        write_private(self._directory / f"mac-{kid}.key", _hex(self._ids, 32))
        self._write_index({**self._index, "macs": [*self._index["macs"], kid]})
        self.refresh()
        return kid

    # Certificates ---------------------------------------------------------------------------

    def server(self, names: Sequence[str], *, now_ms: int) -> Credential:
        """What listeners show for these names; kept until due for renewal. Raises OSError."""
        wanted = list(dict.fromkeys(names))

        def fits(kept: Credential) -> bool:
            return server_names(kept.certificate_pem) == wanted

        def issue() -> Credential:
            return issue_server(self.ca, wanted, now_ms=now_ms)

        return self._kept("server.pem", issue, fits, now_ms)

    @property
    def server_file(self) -> Path:
        """Where `server` keeps certificate and key, in one PEM file as HTTPS listeners read it."""
        return self._directory / "server.pem"

    def etcd_client(self, *, now_ms: int) -> Credential:
        """How the broker is known to etcd; kept until due for renewal. Raises OSError."""

        def issue() -> Credential:
            return issue_client(self.ca, ETCD_USER, now_ms=now_ms)

        return self._kept("etcd-client.pem", issue, lambda _: True, now_ms)

    def introduce_ca(self, *, now_ms: int) -> None:
        """Step 1: make the next CA; it is in `ca_bundle` and does not issue yet.

        Raises KeyringError when a replacement is already under way, OSError.
        """
        if self._has("ca-next.pem") or self._has("ca-previous.pem"):
            raise KeyringError("a replacement of the CA is already under way; finish it first")
        write_private(
            self._directory / "ca-next.pem", _join(make_ca(self.federation, now_ms=now_ms))
        )
        self.refresh()

    def promote_ca(self) -> None:
        """Step 2: the next CA issues, the old one stays trusted.

        Raises KeyringError when there is no next CA, OSError.
        """
        if not self._has("ca-next.pem"):
            raise KeyringError("there is no next CA; introduce one first")
        # Only the certificate of the old one is kept: what it signed stays good, and nothing
        # new can be signed by it.
        write_private(self._directory / "ca-previous.pem", self.ca.certificate_pem)
        (self._directory / "ca-next.pem").replace(self._directory / "ca.pem")
        sync_directory(self._directory)
        self.refresh()

    def retire_ca(self) -> None:
        """Step 3: what the old CA issued is refused. Raises KeyringError, OSError."""
        if not self._has("ca-previous.pem"):
            raise KeyringError("there is no previous CA to retire")
        (self._directory / "ca-previous.pem").unlink()
        self.refresh()

    # Inside ---------------------------------------------------------------------------------

    def _kept(
        self,
        name: str,
        issue: Callable[[], Credential],
        fits: Callable[[Credential], bool],
        now_ms: int,
    ) -> Credential:
        if self._has(name):
            kept = self._credential(name)
            good = issued_by(kept.certificate_pem, self.ca.certificate_pem) and fits(kept)
            if good and now_ms < facts_of(kept.certificate_pem).renewal_due_ms:
                return kept
        fresh = issue()
        write_private(self._directory / name, _join(fresh))
        return fresh

    def _has(self, name: str) -> bool:
        return (self._directory / name).exists()

    def _read(self, name: str) -> bytes:
        return read_private(self._directory / name)

    def _credential(self, name: str) -> Credential:
        return _split(self._read(name))

    def _signer(self, kid: str) -> TicketSigner:
        return TicketSigner.from_seed(bytes.fromhex(self._read(f"ticket-{kid}.key").decode()))

    def _write_index(self, index: dict[str, Any]) -> None:
        write_private(self._directory / _INDEX, json.dumps(index, indent=1).encode())


def _create(directory: Path, federation: str, now_ms: int, ids: Ids) -> None:
    """Make a whole key directory beside its place and move it there."""
    draft = directory.with_name(f".{directory.name}.{os.getpid()}.new")
    shutil.rmtree(draft, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft.mkdir(mode=0o700)
    seeds = [ids.token_bytes(32) for _ in range(2)]
    signers = [TicketSigner.from_seed(s) for s in seeds]
    for seed, signer in zip(seeds, signers, strict=True):
        write_private(draft / f"ticket-{signer.kid}.key", seed.hex().encode())
    mac = ids.token_bytes(8).hex()
    write_private(draft / f"mac-{mac}.key", _hex(ids, 32))
    write_private(draft / "ca.pem", _join(make_ca(federation, now_ms=now_ms)))
    index = {
        "version": 1,
        "federation": federation,
        "previous": "",
        "signing": signers[0].kid,
        "next": signers[1].kid,
        "public": {s.kid: s.public_key.hex() for s in signers},
        "macs": [mac],
    }
    write_private(draft / _INDEX, json.dumps(index, indent=1).encode())
    try:
        draft.rename(directory)
    except OSError:
        # Another broker process was first: its keys are the ones.
        shutil.rmtree(draft, ignore_errors=True)
        if not (directory / _INDEX).exists():
            raise
    sync_directory(directory.parent)


def _hex(ids: Ids, count: int) -> bytes:
    return ids.token_bytes(count).hex().encode()


def _join(credential: Credential) -> bytes:
    return credential.certificate_pem + credential.key_pem


def _split(pem: bytes) -> Credential:
    """Certificates and key of one PEM text; the key may be missing."""
    blocks = [(m[1], m[0]) for m in _PEM_BLOCK.finditer(pem)]
    certificates = b"".join(text for kind, text in blocks if kind == b"CERTIFICATE")
    load_chain(certificates)
    key = b"".join(text for kind, text in blocks if kind.endswith(b"PRIVATE KEY"))
    return Credential(certificates, key)
