"""Cancelled work: a video is not decoded to its end, and the pool continues."""

import threading
import time

from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.waiting import AbandonedError, working_until
from tests.clips import write_clip


class Silent:
    """A video whose server does not answer, for a minute."""

    size_bytes, max_wait_s = 10**6, 60.0

    def __init__(self):
        self.is_asked, self.is_released = threading.Event(), threading.Event()

    def read(self, start, size):  # noqa: ARG002 - the source's signature
        self.is_asked.set()
        self.is_released.wait(60)
        raise EOFError


def extract(pool, video):
    return pool.extract_by_ranges(video, sampling=Sampling(), limits=Limits())


def test_work_and_waiting_for_a_process_end_soon_after_nobody_waits_for_the_video(tmp_path):
    clip, video, errors = write_clip(tmp_path / "short.mp4", frames=24, gop=12, fps=12), Silent(), []
    over = threading.Event()

    def work():
        with working_until(over.is_set):
            try:
                extract(pool, video)
            except BaseException as error:  # noqa: BLE001 - looked at below
                errors.append(error)

    with DecodePool(processes=1) as pool:
        workers = [threading.Thread(target=work) for _ in range(2)]  # one holds the only process
        for each in workers:
            each.start()
        assert video.is_asked.wait(60)
        began_s = time.monotonic()
        over.set()
        for each in workers:
            each.join(20)
        took_s = time.monotonic() - began_s
        video.is_released.set()

        assert [type(error) for error in errors] == [AbandonedError] * 2
        assert took_s < 10
        assert len(pool.extract(clip).unique)
