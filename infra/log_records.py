"""Log records that are safe to print, whatever they quote."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import PurePath
from typing import Any

from infra.log_context import log_fields
from reelabel.text import printable

_LAYOUT = "\n\t"


class PrintableRecord(logging.LogRecord):
    """A log record with invisible characters as pictures: in its arguments all, newlines included.

    Every formatter and every handler gets the same texts: the terminal's, JSON lines, and Prefect's.

    Attributes:
        known: What it is about, where the context says so; see `infra.log_context`.
    """

    def __init__(self, *fields: Any, **named: Any) -> None:  # noqa: ANN401 - those of a log record
        """Store the record."""
        super().__init__(*fields, **named)
        self.known = log_fields()
        if isinstance(self.args, tuple):
            self.args = tuple(map(_quoted, self.args))
        elif self.args:
            self.args = {name: _quoted(value) for name, value in self.args.items()}
        if self.exc_info and self.exc_info[0]:
            # Formatters use this text if there is one.
            self.exc_text = printable("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"), keep=_LAYOUT)

    def getMessage(self) -> str:  # noqa: N802 - overrides
        """Return the message."""
        return printable(super().getMessage(), keep=_LAYOUT)


def make_logs_printable() -> None:
    """Make every log record of this process a PrintableRecord."""
    logging.setLogRecordFactory(PrintableRecord)


class _ToPrefect(logging.Handler):
    """Sends errors that are logged during a run to Prefect, where the run's other log lines are."""

    def emit(self, record: logging.LogRecord) -> None:
        contexts = sys.modules.get("prefect.context")
        if contexts and (contexts.FlowRunContext.get() or contexts.TaskRunContext.get()):
            from prefect.logging.handlers import APILogHandler  # noqa: PLC0415 - imported by now

            APILogHandler().emit(record)


def show_errors_in_prefect() -> None:
    """Have Prefect show the errors that this program logs during a run, with their tracebacks."""
    logging.getLogger("reelabel").addHandler(_ToPrefect(logging.ERROR))


def _quoted(value: Any) -> Any:  # noqa: ANN401 - any argument of a log call
    return printable(str(value)) if isinstance(value, str | PurePath | BaseException) else value
