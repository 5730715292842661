"""Basic authentication for Prefect's API."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import SecretStr


def basic_auth_headers(login: SecretStr | None) -> dict[str, str]:
    """Return the request headers for a login `user:password`; none if there is no login."""
    return {} if login is None else {"Authorization": f"Basic {b64encode(login.get_secret_value().encode()).decode()}"}
