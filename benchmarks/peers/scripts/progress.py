"""Reports the progress of a run that will be killed."""

import threading
import urllib.request
from contextlib import contextmanager, suppress

from benchmarks.peers.scripts.job import report_progress

LOOK_S = 0.1
ANSWERED = b"vllm:request_success_total"


@contextmanager
def answers_counted(server: str):
    """Report how many requests vLLM's server has answered, repeatedly.

    https://docs.vllm.ai/en/stable/usage/metrics/
    """
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            with suppress(OSError), urllib.request.urlopen(f"{server}/metrics") as response:  # noqa: S310 - ours
                report_progress(sum(int(float(line.split()[-1])) for line in response if line.startswith(ANSWERED)))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        is_over.set()
        looking.join()
