"""TLS of the embedded S3 server: clients verify it, and its components accept only each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from infra.embedded.home import write_privately

if TYPE_CHECKING:
    from pathlib import Path

_GRPC = ("MASTER", "VOLUME", "FILER", "S3", "ADMIN", "WORKER", "CLIENT")
_HTTPS = ("MASTER", "VOLUME", "FILER", "ADMIN", "CLIENT")
_VALIDITY = timedelta(days=3650)
_RENEWED_BEFORE = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of a server on 127.0.0.1 and its key, as PEM. It is its own authority: no other is trusted."""

    path: Path
    key_path: Path

    def ensure(self) -> None:
        """Write a new certificate, unless there is one with its key that remains valid for a year."""
        if not self._is_usable():
            key = ec.generate_private_key(ec.SECP256R1())
            private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_privately(self.key_path, private.decode())
            write_privately(self.path, _self_signed(key).public_bytes(Encoding.PEM).decode())

    def _is_usable(self) -> bool:
        try:
            certificate = x509.load_pem_x509_certificate(self.path.read_bytes())
            key = load_pem_private_key(self.key_path.read_bytes(), None)
        except (FileNotFoundError, ValueError, TypeError):
            return False
        is_its_key = certificate.public_key() == key.public_key()
        return is_its_key and certificate.not_valid_after_utc - datetime.now(UTC) > _RENEWED_BEFORE


def mutual_tls(certificate: Certificate) -> dict[str, str]:
    """Return the variables with which all parts of the server answer only processes that can read the key."""
    files = {"CERT": certificate.path, "KEY": certificate.key_path}
    sections = [f"GRPC_{part}" for part in _GRPC] + [f"HTTPS_{part}" for part in _HTTPS]
    variables = {f"WEED_{section}_{name}": str(path) for section in sections for name, path in files.items()}
    authorities = {f"WEED_{section}_CA": str(certificate.path) for section in ("GRPC", *sections)}
    return {**variables, **authorities, "WEED_HTTPS_CLIENT_ENABLED": "true"}


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now, number = datetime.now(UTC), x509.random_serial_number()
    # A unique name: clients look for a certificate's issuer by name, and may know an earlier one.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Reelabel {number:x}")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - timedelta(days=1))  # clocks are set back
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
