"""Runs `reelabel` with decoding processes that preload the frame counter, which they would not inherit.

`python -m benchmarks.peers.scripts.counted COMMAND`; imported, it does the same for the process that imports it.
"""

from reelabel.pool import fork_server

fork_server._ENVIRONMENT += ("LD_PRELOAD",)  # noqa: SLF001 - no option of ours, so that no one else can

if __name__ == "__main__":
    from flows.cli.main import main

    main()
