"""Content hashes of plain values."""

from __future__ import annotations

import hashlib
import json
from typing import Any

DIGEST_LENGTH = 32


def json_digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Hash a JSON value independently of key order; 32 hex digits of SHA-256."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def hash64(text: str) -> int:
    """Hash a text to a 64-bit number, the same on every machine; 8 bytes of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
