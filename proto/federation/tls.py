"""TLS for HTTPS: contexts for both sides, TLS 1.3 at least. Only the standard library.

gRPC has no say in the version, so there it is looked at after the handshake (`session_tls`).
"""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(pem_file: Path) -> ssl.SSLContext:
    """What an HTTPS listener shows: certificate and key in one PEM file.

    Raises OSError and ssl.SSLError when the file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pem_file)
    return context


def renew_server_context(context: ssl.SSLContext, pem_file: Path) -> None:
    """Show what now lies in the file to every connection from here on; open ones are kept.

    Raises OSError and ssl.SSLError, and then goes on showing what it showed.
    """
    server_context(pem_file)
    context.load_cert_chain(pem_file)


def client_context(ca_file: Path) -> ssl.SSLContext:
    """Trusts the CAs of this file and nobody else, and checks the host's name.

    Raises OSError and ssl.SSLError when the file cannot be used.
    """
    return pinned_context(ca_file.read_text(encoding="ascii"))


def pinned_context(ca_pem: str) -> ssl.SSLContext:
    """Trusts the CAs of this PEM text and nobody else. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=ca_pem)
    return context


def unverified_context() -> ssl.SSLContext:
    """Trusts anybody: only to fetch a CA that is then checked against its known hash."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
