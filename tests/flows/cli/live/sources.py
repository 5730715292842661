"""Videos that grow brighter, and a web server of a folder."""

import functools
import http.server
from contextlib import contextmanager

import av
import numpy as np

from tests.http_server import serve

FPS = 10
SECONDS = 1


def write_video(path, *, seconds=SECONDS, tone_hz=None, **options):
    """Write a video that grows brighter, silent or with a tone on the left one of two channels at 44.1 kHz."""
    with av.open(str(path), "w", **options) as container:
        stream = container.add_stream("libx264", rate=FPS)
        sound = container.add_stream("aac", rate=44_100, layout="stereo") if tone_hz else None
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for number in range(round(FPS * seconds)):
            pixels = np.full((96, 128, 3), number * 12 % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
        if sound:
            left = np.sin(2 * np.pi * tone_hz * np.arange(round(44_100 * seconds)) / 44_100) * 0.5
            samples = np.stack([left, np.zeros_like(left)]).astype(np.float32)
            tone = av.AudioFrame.from_ndarray(samples, format="fltp", layout="stereo")
            tone.sample_rate, tone.pts = 44_100, 0
            container.mux(sound.encode(tone))
            container.mux(sound.encode(None))
    return path


@contextmanager
def served(folder):
    """Serve a folder's files by HTTP."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with serve(handler) as web:
        yield web.url


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""
