"""Choose an engine's settings on this machine: `python -m reelabel_engine.tuning_main`.

Reads a pickled EngineConfig from standard input and writes a pickled Tuning, or the error, to standard output.
A module of its own: pickle would look for a Tuning that is defined in the module being run in the reader's `__main__`.
"""

from __future__ import annotations

import os
import pickle
import sys

from reelabel.errors import ReelabelError
from reelabel_engine.tuning import Tuning, tune_engine


def main() -> None:
    """Serve one request."""
    # Libraries may print to standard output; keep that out of the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    config = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    try:
        chosen: Tuning | ReelabelError = tune_engine(config)
    except ReelabelError as error:
        chosen = error
    with answer:
        pickle.dump(chosen, answer)


if __name__ == "__main__":
    main()
