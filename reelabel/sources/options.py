"""How sources are reached: S3 and servers that speak its protocol, and the web."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, IPvAnyNetwork, SecretStr


class S3Options(BaseModel):
    """How S3 is reached."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint_url: Annotated[str | None, Field(description="S3 endpoint; defaults to Amazon's.")] = None
    region: Annotated[str, Field(description="S3 region.")] = "us-east-1"
    access_key_id: Annotated[
        SecretStr | None, Field(description="S3 access key; defaults to the AWS credential chain.")
    ] = None
    secret_access_key: Annotated[SecretStr | None, Field(description="S3 secret key.")] = None
    ca_file: Annotated[
        Annotated[Path, AfterValidator(Path.absolute)] | None,
        Field(description="CA certificate (PEM) for an https:// endpoint; defaults to the system's."),
    ] = None
    connect_timeout_s: Annotated[float, Field(gt=0, le=300, description="Seconds to wait for a connection.")] = 10
    read_timeout_s: Annotated[float, Field(gt=0, le=3600, description="Seconds to wait for data.")] = 60
    max_attempts: Annotated[
        int,
        Field(ge=1, le=20, description="Attempts per request; refusals of a busy store do not count."),
    ] = 4


class WebOptions(BaseModel):
    """How videos are read over `http://` and `https://`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_s: Annotated[float, Field(gt=0, le=3600, description="Seconds to wait for a connection or for data.")] = 30
    total_timeout_s: Annotated[
        float, Field(gt=0, le=86_400, description="Maximum seconds for downloading one video, including retries.")
    ] = 900
    max_attempts: Annotated[
        int,
        Field(
            ge=1,
            le=20,
            description="Attempts per request before giving up; more than one also waits for a busy server (429, 503).",
        ),
    ] = 4
    max_concurrency: Annotated[int, Field(ge=1, le=256, description="Concurrent requests per process.")] = 16
    allow_hosts: Annotated[
        tuple[str, ...],
        Field(description='Allowed hosts, such as ["media.example.com", "*.example.org"]; if empty, all are.'),
    ] = ()
    allow_networks: Annotated[
        tuple[IPvAnyNetwork, ...],
        Field(description='Networks allowed in addition to the public internet, such as ["10.1.0.0/16"].'),
    ] = ()
    allow_private: Annotated[
        bool,
        Field(description="Allow all private, link-local, loopback and other non-public addresses."),
    ] = False
