"""The services that runs use: Postgres, the store, the web and Prefect."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, IPvAnyNetwork, SecretStr, field_validator, model_validator
from pydantic.dataclasses import dataclass

from infra.settings.types import SECTION, Login, SettingsSection, library_field
from reelabel.options import S3Options, WebOptions
from reelabel.seal import NO_KEY, Seal

_KEY_LENGTH = 32


class DatabaseSettings(SettingsSection):
    """The Postgres database that holds results."""

    url: SecretStr | None = None
    """postgresql://user:password@host:port/database, with libpq's options; if none is set, Postgres is embedded."""
    reader_url: SecretStr | None = None
    """The same database with a read-only login, for queries; defaults to url."""
    owner_url: SecretStr | None = None
    """The same database with the login that owns its tables, for upgrades; defaults to url."""

    @property
    def is_set(self) -> bool:
        """Whether any URL is set: each names the user's own database, so that no embedded one is used."""
        return (self.url or self.reader_url or self.owner_url) is not None


@dataclass(frozen=True, kw_only=True, config=SECTION)
class StoreSettings(S3Options):
    """Where frame files are stored, and how S3 is reached."""

    access_key_id: Annotated[SecretStr | None, library_field(S3Options, "access_key_id")] = None
    secret_access_key: Annotated[SecretStr | None, library_field(S3Options, "secret_access_key")] = None
    uri: Annotated[str | None, Field(pattern=r"^(s3|file)://.+")] = None
    """s3://bucket/prefix or file:///folder; if unset, the embedded S3 server is started."""
    encoding: Literal["raw", "zstd", "sparse"] = "zstd"
    """Pixel encoding of frame files. All are exact, so labels do not depend on it."""
    read_buckets: tuple[str, ...] = ()
    """S3 buckets that videos may be read from, such as ["videos"]; if empty, any."""
    video_access_key_id: SecretStr | None = None
    """S3 access key for reading videos only; defaults to access_key_id."""
    video_secret_access_key: SecretStr | None = None
    """Secret key of video_access_key_id."""
    mac_key: SecretStr | None = None
    """Signs frame, index and plan files, so that those altered by others are not used: 32 or more random characters,
    the same on all machines. Generated for the embedded S3 server."""

    @field_validator("mac_key")
    @classmethod
    def _is_long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _KEY_LENGTH:
            raise ValueError(f"use at least {_KEY_LENGTH} random characters, such as those of `openssl rand -hex 32`")
        return key

    @model_validator(mode="after")
    def _video_keys_go_together(self) -> Self:
        if (self.video_access_key_id is None) != (self.video_secret_access_key is None):
            raise ValueError("video_access_key_id and video_secret_access_key must be set together")
        return self

    def for_videos(self) -> S3Options:
        if self.video_access_key_id is None:
            return self
        return replace(self, access_key_id=self.video_access_key_id, secret_access_key=self.video_secret_access_key)

    @property
    def seal(self) -> Seal:
        """What signs the files on the store: with `mac_key`, or without a key."""
        return Seal(self.mac_key.get_secret_value().encode()) if self.mac_key else NO_KEY


@dataclass(frozen=True, kw_only=True, config=SECTION)
class WebSettings(WebOptions):
    """How videos are read over `http://` and `https://`."""

    allow_networks: Annotated[tuple[IPvAnyNetwork, ...], library_field(WebOptions, "allow_networks")] = ()


class PrefectSettings(SettingsSection):
    """The Prefect server and its work pools."""

    api_url: str | None = Field(None, pattern=r"^https?://.+")
    """The address of Prefect's API, http://host:port/api; if unset, the embedded server is started."""
    auth_string: Login | None = None
    """user:password, if the API requires a login; generated for the embedded server."""
    work_pool: str = Field("reelabel", min_length=1)
    """Work pool of the deployments."""
