"""Mutual TLS between the parts of the embedded S3 server, which otherwise obey every user of the machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from infra.embedded.home import write_privately

if TYPE_CHECKING:
    from pathlib import Path

_GRPC = ("MASTER", "VOLUME", "FILER", "S3", "ADMIN", "WORKER", "CLIENT")
_HTTPS = ("MASTER", "VOLUME", "FILER", "ADMIN", "CLIENT")
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
_VALIDITY = timedelta(days=3650)


def mutual_tls(folder: Path) -> dict[str, str]:
    """Write a new certificate, and return the variables with which all parts present it and demand it.

    The certificate is its own authority: only a process that can read its key, in `folder`, is answered.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    files = {"CERT": folder / "certificate.pem", "KEY": folder / "key.pem"}
    write_privately(files["KEY"], key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    write_privately(files["CERT"], _certificate(key).public_bytes(Encoding.PEM).decode())
    sections = [f"GRPC_{part}" for part in _GRPC] + [f"HTTPS_{part}" for part in _HTTPS]
    variables = {f"WEED_{section}_{name}": str(path) for section in sections for name, path in files.items()}
    authorities = {f"WEED_{section}_CA": str(files["CERT"]) for section in ("GRPC", *sections)}
    return {**variables, **authorities, "WEED_HTTPS_CLIENT_ENABLED": "true"}


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks are set back
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
