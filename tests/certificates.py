"""A private certificate authority for tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = timedelta(days=1)


class Authority:
    """A certificate authority; clients and servers that trust it load the file `certificate`."""

    def __init__(self, folder: Path, name: str = "Test authority"):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        signed = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.certificate = folder / f"{name.replace(' ', '-')}.crt"
        self.certificate.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))

    def sign(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Create a certificate and its key: for a server if hosts are given, otherwise for a client named `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key.public_key())
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        key_file.touch(mode=0o600)
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, key_file


def _builder(subject, issuer, public_key):
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def _named(name):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _host(host):
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
