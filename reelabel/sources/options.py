"""Options of sources: S3 and servers that speak its protocol, and the web."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from reelabel.options import check_options, option


@runtime_checkable
class Secret(Protocol):
    """A text that is not shown, such as pydantic's `SecretStr`."""

    def get_secret_value(self) -> str:
        """Return the text."""


def reveal(secret: str | Secret | None) -> str | None:
    """Return the text of a secret; None if there is none."""
    return secret.get_secret_value() if isinstance(secret, Secret) else secret or None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """How S3 is reached."""

    endpoint_url: str | None = option(None, "S3 endpoint; defaults to Amazon's.")
    region: str = option("us-east-1", "S3 region.")
    access_key_id: str | Secret | None = option(
        None, "S3 access key; defaults to the AWS credential chain.", is_secret=True
    )
    secret_access_key: str | Secret | None = option(None, "S3 secret key.", is_secret=True)
    ca_file: Path | None = option(
        None,
        "CA certificate (PEM) for an https:// endpoint; defaults to the system's.",
        check=Path.absolute,  # processes that use it may run in other folders
    )
    connect_timeout_s: float = option(10, "Seconds to wait for a connection.", gt=0, le=300)
    read_timeout_s: float = option(60, "Seconds to wait for data.", gt=0, le=3600)
    max_attempts: int = option(4, "Attempts per request; refusals of a busy store do not count.", ge=1, le=20)

    def __post_init__(self) -> None:
        check_options(self, S3Options)


def _as_networks(given: Any) -> Any:  # noqa: ANN401 - whatever a user gave
    if not isinstance(given, list | tuple):
        return given
    try:
        return tuple(map(ip_network, given))
    except ValueError:
        raise ValueError("is not a network; write it as 10.1.0.0/16, with all host bits zero") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """How videos are read over `http://` and `https://`."""

    timeout_s: float = option(30, "Seconds to wait for a connection or for data.", gt=0, le=3600)
    total_timeout_s: float = option(
        900, "Maximum seconds for downloading one video, including retries.", gt=0, le=86_400
    )
    max_attempts: int = option(
        4,
        "Attempts per request before giving up; more than one also waits for a busy server (429, 503).",
        ge=1,
        le=20,
    )
    max_concurrency: int = option(16, "Concurrent requests per process.", ge=1, le=256)
    allow_hosts: tuple[str, ...] = option(
        (), 'Allowed hosts, such as ["media.example.com", "*.example.org"]; if empty, all are.'
    )
    allow_protocols: tuple[str, ...] = option(
        (),
        'Filesystems that `fsspec+` URIs may use, such as ["sftp"]; '
        "gs, gcs, az, abfs, abfss and hf need not be listed.",
    )
    allow_networks: tuple[IPv4Network | IPv6Network, ...] = option(
        (), 'Networks allowed in addition to the public internet, such as ["10.1.0.0/16"].', convert=_as_networks
    )
    allow_private: bool = option(False, "Allow all private, link-local, loopback and other non-public addresses.")

    def __post_init__(self) -> None:
        check_options(self, WebOptions)
