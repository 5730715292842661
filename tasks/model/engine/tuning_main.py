"""Child process that chooses an engine's settings, since libraries that it imports read the environment at import."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING

from reelabel.errors import ReelabelError
from tasks.model.engine.tuning import tune_engine

if TYPE_CHECKING:
    from tasks.model.engine.tuning import Tuning


def main() -> None:
    """Serve one request."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print to standard output; keep that out of the answer
    config = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    try:
        chosen: Tuning | ReelabelError = tune_engine(config)
    except ReelabelError as error:
        chosen = error
    with answer:
        pickle.dump(chosen, answer)


if __name__ == "__main__":
    main()
