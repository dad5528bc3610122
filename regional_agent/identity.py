"""The agent's identity on disk: its key, its certificate, whom it trusts and where they are.

    identity/agent.key      private key; never leaves this machine
    identity/agent.crt      certificate the broker issued for it
    identity/ca.crt         CAs of the federation that are good now
    identity/identity.json  cluster, region, addresses
    identity/agent.key.next the key of a request under way

Every renewal is for a new key. It is on disk before anything is asked for, and the certificate
is what decides: after a crash at any point, the key that fits the certificate is the agent's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.certificates import (
    CertificateError,
    CertificateFacts,
    Credential,
    facts_of,
    issued_by,
    key_sha256,
    new_key,
)
from federation.private_files import (
    PrivateFileError,
    make_private_directory,
    read_private,
    write_private,
)

KEY = "agent.key"
NEXT_KEY = "agent.key.next"
CERTIFICATE = "agent.crt"
CA = "ca.crt"
FACTS = "identity.json"


class IdentityError(Exception):
    """There is no usable identity; the text is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this agent is. `ca_file` is where whoever needs a file finds `ca_pem`."""

    cluster: str
    region: str
    credential: Credential
    ca_pem: bytes
    ca_file: Path
    session_addresses: tuple[str, ...]
    api_url: str
    facts: CertificateFacts


@dataclass(frozen=True, slots=True)
class Issued:
    """What a broker answered to a request for a certificate."""

    certificate_pem: bytes
    ca_pem: bytes
    cluster: str
    region: str
    session_addresses: tuple[str, ...]
    api_url: str


def identity_directory(state_dir: Path) -> Path:
    """Where the identity of an agent with this state directory lies."""
    return state_dir / "identity"


def has_identity(state_dir: Path) -> bool:
    """Whether this agent ever joined."""
    return (identity_directory(state_dir) / CERTIFICATE).exists()


def load_identity(state_dir: Path) -> Identity:
    """The identity on disk, its age not looked at. Raises IdentityError."""
    directory = identity_directory(state_dir)
    if not has_identity(state_dir):
        raise IdentityError(f"no identity in {directory}; run: tradewind-agent join")
    try:
        certificate_pem = read_private(directory / CERTIFICATE)
        ca_pem = read_private(directory / CA)
        said: Any = json.loads(read_private(directory / FACTS))
        facts = facts_of(certificate_pem)
        if not issued_by(certificate_pem, ca_pem) or facts.cluster != said["cluster"]:
            raise IdentityError(f"the files in {directory} do not belong together; join again")
        return Identity(
            cluster=facts.cluster,
            region=str(said["region"]),
            credential=Credential(certificate_pem, _fitting_key(directory, facts)),
            ca_pem=ca_pem,
            ca_file=directory / CA,
            session_addresses=tuple(map(str, said["session_addresses"])),
            api_url=str(said["api_url"]),
            facts=facts,
        )
    except PrivateFileError as problem:
        raise IdentityError(str(problem)) from problem
    except (OSError, CertificateError, ValueError, KeyError, TypeError) as problem:
        raise IdentityError(
            f"the identity in {directory} is damaged ({problem}); join again with a new invitation"
        ) from problem


def requested_key(state_dir: Path) -> bytes:
    """The key (PEM) to ask a certificate for: the one of a request under way, else a new one.

    Raises IdentityError when it cannot be kept privately.
    """
    path = identity_directory(state_dir) / NEXT_KEY
    try:
        make_private_directory(path.parent)
        if path.exists():
            kept = read_private(path)
            key_sha256(kept)
            return kept
    except CertificateError:
        pass  # damaged before it was ever used: nothing is lost with it
    except OSError as problem:
        raise IdentityError(f"the key cannot be kept: {problem}") from problem
    fresh = new_key()
    try:
        write_private(path, fresh)
    except OSError as problem:
        raise IdentityError(f"the key cannot be kept: {problem}") from problem
    return fresh


def install(state_dir: Path, key_pem: bytes, issued: Issued) -> Identity:
    """Make what was issued for `key_pem` (see `requested_key`) the agent's identity.

    Raises IdentityError when it does not fit together, and then changes nothing.
    """
    _refuse_unfit(key_pem, issued)
    directory = identity_directory(state_dir)
    said = {
        "cluster": issued.cluster,
        "region": issued.region,
        "session_addresses": list(issued.session_addresses),
        "api_url": issued.api_url,
    }
    try:
        # The certificate comes last but one: from then on the new key is the one that fits.
        write_private(directory / CA, issued.ca_pem)
        write_private(directory / FACTS, json.dumps(said, indent=1).encode())
        write_private(directory / CERTIFICATE, issued.certificate_pem)
        write_private(directory / KEY, key_pem)
        (directory / NEXT_KEY).unlink(missing_ok=True)
    except OSError as problem:
        raise IdentityError(f"the identity cannot be kept: {problem}") from problem
    return load_identity(state_dir)


def _refuse_unfit(key_pem: bytes, issued: Issued) -> None:
    try:
        facts = facts_of(issued.certificate_pem)
        ours = facts.public_key_sha256 == key_sha256(key_pem)
        trusted = issued_by(issued.certificate_pem, issued.ca_pem)
    except CertificateError as problem:
        raise IdentityError(f"the broker's answer cannot be used: {problem}") from problem
    if not ours:
        raise IdentityError("the broker issued a certificate for another key than was asked for")
    if not trusted:
        raise IdentityError("the broker issued a certificate its own CA did not sign")
    if facts.cluster != issued.cluster:
        raise IdentityError(
            f"the broker issued a certificate of {facts.cluster or 'no cluster'}, and calls this "
            f"cluster {issued.cluster}"
        )


def _fitting_key(directory: Path, facts: CertificateFacts) -> bytes:
    """The private key of the certificate; finishes an installation a crash interrupted."""
    for name in (KEY, NEXT_KEY):
        path = directory / name
        if not path.exists():
            continue
        key_pem = read_private(path)
        if key_sha256(key_pem) != facts.public_key_sha256:
            continue
        if name == NEXT_KEY:
            write_private(directory / KEY, key_pem)
            path.unlink()
        return key_pem
    raise IdentityError(
        f"no key in {directory} fits the certificate; join again with a new invitation"
    )
