"""Prefect's client in commands: checked first, configured, and quiet."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flows.names import PREFECT_VARIABLES
from infra.embedded import export
from infra.errors import ConfigurationError
from infra.health import check_prefect
from infra.uri import redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings

_DRAIN_TIMEOUT_S = 5
_AT_ONCE = {"PREFECT_CLIENT_MAX_RETRIES": "0"}
# Logs go to the Prefect server; the terminal shows our progress bar and summary instead.
_QUIET = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL"}


@contextmanager
def prefect_ready(settings: Settings, *, patient: bool = True) -> Iterator[None]:
    """Configure Prefect's client, and turn what it raises into our errors.

    Prefect reads its environment when it is imported: import it inside this context, not before.

    Args:
        settings: With the server's address.
        patient: Retry for about a minute if the server is unavailable; otherwise fail at once.

    Raises:
        ConfigurationError: The API does not respond, or rejects a request.
    """
    found = check_prefect(settings)
    if not found.ok:
        raise ConfigurationError(f"Prefect at {found.detail}. {found.advice}")
    quiet = _QUIET if settings.log.format == "text" else {}
    os.environ.update(export(settings) | quiet | (PREFECT_VARIABLES if patient else _AT_ONCE))
    import httpx  # noqa: PLC0415
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.exceptions import PrefectException, PrefectHTTPStatusError  # noqa: PLC0415
    from prefect.logging.handlers import APILogHandler  # noqa: PLC0415

    refresh_global_settings_context()  # where it was imported before, while the services started
    try:
        yield
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        shown = redact_uri(settings.prefect.api_url or "")
        raise ConfigurationError(f"Prefect request to {shown} failed: {_first_line(error)}.") from error
    except PrefectException as error:
        raise ConfigurationError(
            f"Prefect rejected the request: {' '.join(str(error).split()).rstrip('.')}."
        ) from error
    finally:
        # An embedded server stops with this command.
        APILogHandler().flush()
        EventsWorker.drain_all(timeout=_DRAIN_TIMEOUT_S)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
