"""Basic authentication, as Prefect's API asks for it."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import SecretStr


def login_headers(login: SecretStr | None) -> dict[str, str]:
    """Give the headers of a request by `user:password`; none where there is no login."""
    return {} if login is None else {"Authorization": f"Basic {b64encode(login.get_secret_value().encode()).decode()}"}
