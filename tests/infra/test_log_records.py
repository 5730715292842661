"""Log lines are safe to print, whoever formats them."""

import io
import logging
from pathlib import Path

import pytest
from prefect.logging.formatters import PrefectFormatter

import flows
from infra.logs import JsonLines
from tests.hostile import HOSTILE, SHOWN, hidden_in, require_tame

FORMATTERS = {
    "text": lambda: logging.Formatter("%(message)s"),
    "json": JsonLines,
    "prefect": lambda: PrefectFormatter("%(levelname)s | %(message)s"),
}


@pytest.fixture(params=FORMATTERS)
def log(request):
    """A logger, and what its handler has written."""
    assert flows.__doc__  # which every process of a flow or a command imports
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(FORMATTERS[request.param]())
    logger = logging.getLogger("reelabel.test")
    logger.addHandler(handler)
    yield logger, written
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("Job %s failed: %s", HOSTILE, "no frame"), id="argument"),
        pytest.param(("Job %(id)s failed", {"id": HOSTILE}), id="named"),
        pytest.param(("Cannot read %s", Path(HOSTILE)), id="path"),
        pytest.param(("Failed: %s", ValueError(HOSTILE)), id="error"),
        pytest.param((f"Job {HOSTILE.splitlines()[0]} failed",), id="message"),
    ],
)
def test_a_log_line_shows_invisible_characters(log, arguments):
    logger, written = log

    logger.warning(*arguments, extra={"job": HOSTILE})

    require_tame(written.getvalue())
    assert "a␛[2J<U+202E>" in written.getvalue()


def test_every_traceback_shows_invisible_characters_too(log):
    logger, written = log
    try:
        int(HOSTILE.replace("\n", " "))
    except ValueError:
        logger.exception("It failed: %d of %.1f", 1, 2.0)

    assert hidden_in(written.getvalue()) == []
    assert "It failed: 1 of 2.0" in written.getvalue()
    assert "ValueError: " in written.getvalue()


def test_logs_tables_and_messages_write_a_job_id_alike(log):
    logger, written = log

    logger.warning("%s", HOSTILE)

    assert SHOWN in written.getvalue()
