"""Settings of the store, the section `[store]`: where frame files are, how S3 is reached, and the key of the seals."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic.dataclasses import dataclass

from infra.settings.base import SECTION, library_field
from infra.settings.secret_sources import is_block
from reelabel.seal import NO_KEY, Seal
from reelabel.sources.options import S3Options

_KEY_LENGTH = 32


@dataclass(frozen=True, kw_only=True, config=SECTION)
class StoreSettings(S3Options):
    """Where frame files are stored, and how S3 is reached."""

    access_key_id: Annotated[SecretStr | None, library_field(S3Options, "access_key_id")] = None
    secret_access_key: Annotated[SecretStr | None, library_field(S3Options, "secret_access_key")] = None
    uri: Annotated[
        str | None,
        Field(
            pattern=r"^(s3|file)://.+",
            description="s3://bucket/prefix or file:///folder; if empty, the embedded S3 server is started.",
        ),
    ] = None
    encoding: Annotated[
        Literal["raw", "lz4", "zstd", "packets"],
        Field(description="Pixel encoding of frame files. All are exact, so labels do not depend on it."),
    ] = "zstd"
    read_buckets: Annotated[
        tuple[str, ...],
        Field(description='S3 buckets that videos may be read from, such as ["videos"]; if empty, any.'),
    ] = ()
    video_access_key_id: Annotated[
        SecretStr | None,
        Field(description="S3 access key for reading videos only; defaults to access_key_id."),
    ] = None
    video_secret_access_key: Annotated[SecretStr | None, Field(description="Secret key of video_access_key_id.")] = None
    mac_key: Annotated[
        SecretStr | None,
        Field(
            description="Seals frame, index and plan files, so that those altered by others are not used: 32 or more "
            "random characters, the same on all machines. Generated for the embedded S3 server."
        ),
    ] = None

    @field_validator("mac_key")
    @classmethod
    def _is_long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not is_block(key) and len(key.get_secret_value()) < _KEY_LENGTH:
            raise ValueError(f"use at least {_KEY_LENGTH} random characters, such as those of `openssl rand -hex 32`")
        return key

    @model_validator(mode="after")
    def _video_keys_go_together(self) -> Self:
        if (self.video_access_key_id is None) != (self.video_secret_access_key is None):
            raise ValueError("video_access_key_id and video_secret_access_key must be set together")
        return self

    def for_videos(self) -> S3Options:
        """Return how S3 is reached to read videos."""
        if self.video_access_key_id is None:
            return self
        return replace(self, access_key_id=self.video_access_key_id, secret_access_key=self.video_secret_access_key)

    @property
    def seal(self) -> Seal:
        """What seals the files on the store: with `mac_key`, or without a key."""
        return Seal(self.mac_key.get_secret_value().encode()) if self.mac_key else NO_KEY
