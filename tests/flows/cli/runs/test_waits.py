"""What a run waits for is printed above its bar, also by the process of the engine."""

import io
import logging

from rich.console import Console

from flows.cli.runs import follow
from infra.logs import IS_OUTAGE


def test_an_engine_that_was_lost_shows_in_the_terminal_and_other_lines_do_not():
    shown = io.StringIO()
    with follow._waits_printed(Console(file=shown, width=200)):
        for message, extra in (("was lost: killed; see the log e.log (2 so far).", {IS_OUTAGE: True}), ("Else.", {})):
            logging.getLogger("reelabel").warning("Model m %s", message, extra=extra)

    assert shown.getvalue() == "Model m was lost: killed; see the log e.log (2 so far).\n"
