"""Video sources of `reelabel live`: a file at its own speed, a network stream, or a webcam.

They are decoded in this process, outside the sandbox: clients use their own cameras and files.
"""

from __future__ import annotations

import io
import math
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import av
import av.error
import numpy as np
from av.audio.frame import AudioFrame
from PIL import Image

from reelabel.containers.stream_properties import hdr_transfer, read_crop
from reelabel.decode.render import Renderer, View, cut_margins, orientation_of
from reelabel.errors import ConfigurationError
from reelabel.options import Limits
from reelabel.sources.object_info import redact_uri, scheme_of
from reelabel_engine.live_items import AUDIO_HZ

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.frame import VideoFrame


# Models scale frames down further.
_LONG_SIDE_PX = 640
_QUALITY = 85
# A stream without data for this long has ended.
_SILENCE_S = 10.0
# If a file's clock jumps back by at least this, another recording begins; by less, frames are out of order.
_BACK_S = 0.5
# For the thread that waits for a device.
_JOIN_S = 1.0
# FFmpeg probes a stream for this long before the first frame.
_ANALYZE_US = "1000000"
_RTSP, _WEB = ("rtsp", "rtsps"), ("http", "https")
# Protocols that FFmpeg may follow: a remote playlist must not refer to files on this machine.
_PROTOCOLS = {"rtsp": "rtsp,rtsps,rtp,srtp,tcp,udp,tls", "http": "http,https,tcp,tls,crypto,httpproxy", "file": "file"}
_DEVICES = "/dev/video"
_CHECK = "check the source"
_CHECK_DEVICE = "check that it is a webcam, that you may read it, and that no other program uses it"

_CHUNK_S = 0.25
# Audio with smaller gaps is contiguous.
_GAP_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFrame:
    time_s: float
    jpeg: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAudio:
    """A chunk of audio to send."""

    time_s: float  # start in seconds since the source's first frame
    samples: npt.NDArray[np.int16]  # at `AUDIO_HZ`; shape (N,), int16

    @property
    def end_s(self) -> float:
        return self.time_s + len(self.samples) / AUDIO_HZ


class Source:
    """Yields frames of a source at a given rate, and its audio, as they become due; a context manager."""

    def __init__(self, uri: str, *, fps: float) -> None:
        """Open a path, an `rtsp://` address, an `http(s)://` address such as of an HLS playlist, or `/dev/video0`."""
        scheme = (scheme_of(uri) if "://" in uri else None) or "file"
        self._uri, self._step_s = uri, 1 / fps
        self._path = uri.removeprefix("file://") if scheme == "file" else uri
        self._is_device = scheme == "file" and _is_device(self._path)
        self.is_file = scheme == "file" and not self._is_device
        self._container = self._open(scheme)
        self._crop = read_crop(self._container, self._container.streams.video[0])
        self.has_audio = bool(self._container.streams.audio)
        self._stopped = threading.Event()
        self._decoder: threading.Thread | None = None  # of a stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._decoder is None or not self._decoder.is_alive():  # otherwise it blocks in FFmpeg, waiting for a device
            self._container.close()

    def stop(self) -> None:
        self._stopped.set()

    def parts(self, *, with_audio: bool = False) -> Generator[SourceFrame | SourceAudio, None, None]:
        """Yield frames when they are due, until the source ends, and the audio before each.

        A file is played at its own speed. From a stream, the newest frame is taken; frames that arrive too fast are
        dropped, but audio is not.
        """
        due_s, has_frame = 0.0, False
        audio = AudioInput() if with_audio and self.has_audio else None
        for time_s, frame in self._paced(audio) if self.is_file else self._newest(audio):
            if audio and has_frame:  # a frame comes first, because it starts the session's clock
                yield from audio.until(time_s if self.is_file else math.inf)
            if frame is not None and time_s >= due_s:
                due_s = max(due_s + self._step_s, time_s + self._step_s / 2)
                has_frame = True
                yield SourceFrame(time_s=time_s, jpeg=_jpeg(cut_margins(frame, self._crop)))

    def _open(self, scheme: str) -> InputContainer:
        kind = "rtsp" if scheme in _RTSP else "http" if scheme in _WEB else "file"
        if scheme not in {*_RTSP, *_WEB, "file"}:
            raise ConfigurationError(
                f"{redact_uri(self._uri)} is not a source of frames; use a path, rtsp://, http(s):// or /dev/video0."
            )
        options = {"protocol_whitelist": _PROTOCOLS[kind]}
        if kind != "file":
            options["analyzeduration"] = _ANALYZE_US
        if kind == "rtsp":
            options["rtsp_transport"] = "tcp"
        try:
            if self._is_device:  # which has its own size and rate
                container = _open_device(self._path)
            elif kind == "file" and Path(self._path).is_fifo():
                raise ConfigurationError(f"{self._path} is a pipe, which may never open; use a file.")
            else:
                container = av.open(self._path, options=options, timeout=_SILENCE_S)
        except TimeoutError:
            raise self._silent() from None
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed("cannot be opened", error) from None
        if not container.streams.video:
            container.close()
            raise ConfigurationError(f"{redact_uri(self._uri)} has no video; use another source.")
        container.streams.video[0].thread_type = "AUTO"
        return container

    def _decoded(self, *, with_audio: bool) -> Iterator[VideoFrame | AudioFrame]:
        streams = self._container.streams
        try:
            for packet in self._container.demux(streams.video[0], *streams.audio[: int(with_audio)]):
                # Damaged audio is left out; frames continue.
                with suppress(av.error.InvalidDataError) if packet.stream.type == "audio" else nullcontext():
                    yield from cast("list[VideoFrame | AudioFrame]", packet.decode())
        except av.error.EOFError:
            return
        except (av.error.FFmpegError, OSError) as error:
            raise self._failed("ended with an error", error) from None

    def _paced(self, audio: AudioInput | None) -> Iterator[tuple[float, VideoFrame | None]]:
        """Yield frames at their own times; None at the end, when all audio is due."""
        started_s, first_s, last_s = time.monotonic(), None, -1.0
        early: list[AudioFrame] = []  # before the first frame, whose time is the origin
        for frame in self._decoded(with_audio=audio is not None):
            if isinstance(frame, AudioFrame):
                early.append(frame)
            else:
                own_s = (first_s or 0.0) + last_s + self._step_s if frame.time is None else frame.time
                if first_s is None:
                    first_s = own_s
                elif own_s - first_s < last_s - _BACK_S:  # the clock restarts, as in joined recordings
                    first_s = own_s - last_s - self._step_s
            if audio and first_s is not None:
                for sound in early:
                    audio.add(sound, None if sound.time is None else sound.time - first_s)
                early.clear()
            if isinstance(frame, AudioFrame) or own_s - (first_s or 0.0) <= last_s:
                continue
            last_s = own_s - (first_s or 0.0)
            if self._stopped.wait(max(0.0, started_s + last_s - time.monotonic())):
                return
            yield last_s, frame
        if audio:
            audio.end()
            yield math.inf, None

    def _newest(self, audio: AudioInput | None) -> Iterator[tuple[float, VideoFrame | None]]:
        """Yield the latest frame decoded by a thread, with its time of arrival; None if only audio may have arrived."""
        newest: list[tuple[float, VideoFrame]] = []
        arrived, ended, faults = threading.Event(), threading.Event(), []
        started_s = time.monotonic()

        def decode() -> None:
            try:
                for frame in self._decoded(with_audio=audio is not None):
                    if self._stopped.is_set():
                        break
                    _note(frame, time.monotonic() - started_s, newest, audio)
                    arrived.set()
            except ConfigurationError as error:
                faults.append(error)
            finally:
                ended.set()
                arrived.set()

        self._decoder = threading.Thread(target=decode, name="source", daemon=True)
        self._decoder.start()
        try:
            while not self._stopped.is_set():
                self._wait_for(arrived)
                try:
                    yield newest.pop()
                except IndexError:
                    yield math.inf, None
                if ended.is_set() and not newest:
                    break
                self._stopped.wait(self._step_s / 4)
            if audio:
                audio.end()
                yield math.inf, None
        finally:
            self._stopped.set()
            self._decoder.join(_JOIN_S if self._is_device else _SILENCE_S)
        if faults:
            raise faults[0]

    def _wait_for(self, arrived: threading.Event) -> None:
        """Wait for a frame or audio with a timeout, which FFmpeg does not have for devices."""
        if not arrived.wait(_SILENCE_S if self._is_device else None):
            raise self._silent()
        arrived.clear()

    def _silent(self) -> ConfigurationError:
        check = _CHECK_DEVICE if self._is_device else _CHECK
        return ConfigurationError(f"{redact_uri(self._uri)} has sent nothing for {_SILENCE_S:g} seconds; {check}.")

    def _failed(self, what: str, error: Exception) -> ConfigurationError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        check = _CHECK_DEVICE if self._is_device else _CHECK
        return ConfigurationError(f"{redact_uri(self._uri)} {what} ({why}); {check}.")


def _open_device(path: str) -> InputContainer:
    opening: Future[InputContainer] = Future()

    def open_device() -> None:
        try:
            opening.set_result(av.open(path, format="v4l2"))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            opening.set_exception(error)

    threading.Thread(target=open_device, name="opening", daemon=True).start()
    return opening.result(_SILENCE_S)


def _is_device(path: str) -> bool:
    """Return whether a path is a webcam or a link to one, such as those in /dev/v4l/by-id."""
    try:
        return path.startswith(_DEVICES) or Path(path).is_char_device()
    except OSError:  # in an unreadable folder
        return False


def _note(
    frame: VideoFrame | AudioFrame, now_s: float, newest: list[tuple[float, VideoFrame]], audio: AudioInput | None
) -> None:
    if not isinstance(frame, AudioFrame):
        newest[:] = [(now_s, frame)]
    elif audio:
        audio.add(frame, now_s - frame.samples / frame.sample_rate)


def _jpeg(frame: VideoFrame) -> bytes:
    scale = min(1.0, _LONG_SIDE_PX / max(frame.width, frame.height))
    width, height = (max(2, round(side * scale)) for side in (frame.width, frame.height))
    renderer = Renderer(
        width_px=width,
        height_px=height,
        orientation=orientation_of(frame),
        view=View(max_pixels=width * height),
        limits=Limits(),
        hdr=hdr_transfer(frame),
    )
    pixels = np.empty(renderer.shape, np.uint8)
    renderer.draw(frame, pixels)
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=_QUALITY)
    return written.getvalue()


class AudioInput:
    """Collects decoded audio in chunks. Thread-safe."""

    def __init__(self) -> None:
        self._resampler: av.AudioResampler | None = None
        self._format: tuple[str, str, int] | None = None
        self._chunk: list[npt.NDArray[np.int16]] = []
        self._start_s = self._end_s = 0.0
        self._whole: list[SourceAudio] = []
        self._lock = threading.Lock()

    def add(self, frame: AudioFrame, time_s: float | None) -> None:
        """Add audio that begins at `time_s`, in seconds since the source's first frame; None continues the last one."""
        with self._lock:
            audio_format = (frame.format.name, frame.layout.name, frame.sample_rate)
            if audio_format != self._format:
                self._format = audio_format
                self._resampler = av.AudioResampler(format="s16", layout="mono", rate=AUDIO_HZ)
            assert self._resampler
            # Audio never starts before the end of the previous chunk, so that none is refused.
            if time_s is not None and time_s > self._end_s + _GAP_S:
                self._cut()
                self._start_s = self._end_s = time_s
            self._collect(self._resampler.resample(frame))

    def end(self) -> None:
        """Flush the resampler at the end of the audio."""
        with self._lock:
            if self._resampler:
                self._collect(self._resampler.resample(None))
            self._cut()

    def until(self, time_s: float) -> Iterator[SourceAudio]:
        """Yield and remove the chunks that have ended by a time."""
        with self._lock:
            ended = [chunk for chunk in self._whole if chunk.end_s <= time_s]
            del self._whole[: len(ended)]
        yield from ended

    def _collect(self, frames: list[AudioFrame]) -> None:
        for frame in frames:
            samples = frame.to_ndarray()[0].astype("<i2")
            self._chunk.append(samples)
            self._end_s += len(samples) / AUDIO_HZ
            if self._end_s - self._start_s >= _CHUNK_S:
                self._cut()

    def _cut(self) -> None:
        if self._chunk:
            self._whole.append(SourceAudio(time_s=self._start_s, samples=np.concatenate(self._chunk)))
        self._chunk, self._start_s = [], self._end_s
