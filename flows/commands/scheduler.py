"""Prefect, as commands use it: looked at before anything is done, and quiet."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.embedded import export
from infra.errors import ConfigurationError
from infra.health import check_prefect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings


@contextmanager
def prefect_ready(settings: Settings) -> Iterator[None]:
    """Have Prefect's client find its server, and explain what it raises.

    Prefect reads its environment when it is imported: import it inside, not before.

    Raises:
        ConfigurationError: The API does not answer, or refuses.
    """
    found = check_prefect(settings)
    if not found.ok:
        raise ConfigurationError(f"Prefect at {found.detail}. {found.advice}")
    os.environ.update(export(settings))
    import httpx  # noqa: PLC0415
    from prefect.exceptions import PrefectException, PrefectHTTPStatusError  # noqa: PLC0415

    # Its own lines are for logs: the run's row, its log in Prefect and our summary say it all.
    logging.getLogger("prefect").setLevel(logging.CRITICAL)
    logging.getLogger("prefect._internal").setLevel(logging.CRITICAL + 1)
    try:
        yield
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise ConfigurationError(f"Prefect at {settings.prefect.api_url} does not go along: {_gist(error)}.") from error
    except PrefectException as error:
        raise ConfigurationError(f"Prefect refuses: {_gist(error)}.") from error


def _gist(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
