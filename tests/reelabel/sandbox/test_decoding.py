"""Decoding in a locked process: the same frames, from an open descriptor to a sealed memfd."""

import fcntl
import json
import mmap
import os
import random
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import av
import numpy as np
import pytest

from benchmarks.media.matrix import cells_like
from reelabel.decode import gops
from reelabel.errors import VideoError
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from reelabel.sources.video_file import VideoFile
from tests.clips import write_clip
from tests.reelabel.sandbox.child import lock, result_of, run_child

EVERY_FRAME = {"sampling": Sampling(sampler="uniform", num_frames=-1), "as_stored": True}
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# Every container once, with the codecs that most videos have, and some that have decoders of another kind.
CELLS = (
    *("mp4/h264", "mov/prores", "fmp4/hevc", "3gp/h263", "mkv/ffv1", "webm/vp9", "webm/av1", "avi/mpeg4", "flv/flv1"),
    *("asf/wmv2", "ts/h264", "ps/mpeg2", "ivf/vp8", "mxf/dnxhd", "ogg/vp8", "rm/rv20", "raw/mjpeg", "raw/gif"),
)


def decode(video, threads):
    """Decode all frames of an open descriptor."""
    try:
        with os.fdopen(video, "rb", buffering=0) as file:
            whole = VideoFile(file.fileno(), file.seek(0, os.SEEK_END))
            return extract_local(whole, **EVERY_FRAME, threads=threads).unique
    except (av.FFmpegError, VideoError) as error:
        return type(error).__name__


def receive(connection):
    message, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
    return message, descriptors


def serve(*, connection, threads):
    """Decode the first video to load all that decoding needs, lock, and decode the others."""
    gops.LEAST_SHARED_PIXELS = gops.LEAST_THREADED_PIXELS = 1  # else tiny pictures have one thread
    with socket.socket(fileno=connection) as parent:
        _, [video] = receive(parent)
        decode(video, 1)  # threads of a decoder may outlive it for a while
        missing = lock(threads=threads)
        before = set(sys.modules)
        while (received := receive(parent))[0]:
            reply(parent, *received[1], threads)
        return {"missing": missing, "imported": sorted(set(sys.modules) - before)}


def reply(parent, video, threads):
    frames = decode(video, threads)
    if isinstance(frames, str):
        parent.send(frames.encode())
        return
    memory = os.memfd_create("frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, frames.nbytes)
    os.posix_fallocate(memory, 0, frames.nbytes)
    with mmap.mmap(memory, frames.nbytes) as mapping:
        mapping[:] = frames.tobytes()
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, SEALS)
    socket.send_fds(parent, [json.dumps(frames.shape).encode()], [memory])
    os.close(memory)


def outcome_in_child(connection, path):
    video = os.open(path, os.O_RDONLY)
    socket.send_fds(connection, [b"decode"], [video])
    os.close(video)
    message, descriptors = receive(connection)
    if not descriptors:
        return message.decode()
    with os.fdopen(descriptors[0], "rb") as file:
        assert fcntl.fcntl(file, fcntl.F_GET_SEALS) == SEALS
        return np.frombuffer(file.read(), np.uint8).reshape(json.loads(message))


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Write videos: whole ones of many formats, and damaged ones; the first one is plain."""
    folder = tmp_path_factory.mktemp("videos")
    plain = write_clip(folder / "plain.mp4").read_bytes()
    by_codec = {f"{container}-{codec}": cell.make() for container, codec, cell in _cells()}
    damaged = {"empty": b"", "text": b"no video\n" * 100, "cut": plain[: len(plain) // 2]}
    for seed in range(8):
        chance, data = random.Random(seed), bytearray(plain)
        for _ in range(20):
            data[chance.randrange(len(data))] = chance.randrange(256)
        damaged[f"fuzzed-{seed}"] = bytes(data)
    paths = []
    for name, data in ({"plain": plain} | by_codec | damaged).items():
        paths.append(folder / name)
        paths[-1].write_bytes(data)
    return paths


def _cells():
    for name in CELLS:
        [cell] = [cell for cell in cells_like(f"{name}/") if cell.structure == "plain"]
        yield cell.container, cell.codec, cell


@pytest.mark.parametrize("threads", [1, 4])
def test_a_locked_process_decodes_like_any_other(videos, threads):
    ours, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ThreadPoolExecutor(1) as thread, ours:
        child = thread.submit(
            run_child, serve, descriptors=(childs.fileno(),), connection=childs.fileno(), threads=threads
        )
        first = os.open(videos[0], os.O_RDONLY)
        socket.send_fds(ours, [b"warm up"], [first])
        os.close(first)
        differing = []
        for path in videos:
            expected, got = decode(os.open(path, os.O_RDONLY), 1), outcome_in_child(ours, path)
            if type(expected) is not type(got) or not np.array_equal(expected, got):
                differing.append((path.name, expected, got))
        ours.shutdown(socket.SHUT_WR)
        childs.close()
        assert result_of(child.result()) == {"missing": [], "imported": []}
    assert differing == []
