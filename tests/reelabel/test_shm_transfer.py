import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reelabel.extract import extract_keyframes
from reelabel.limits import Limits
from reelabel.pool import shm_transfer
from reelabel.pool.decode_pool import DecodePool
from reelabel.pool.shm_transfer import SharedFrames, from_shared_memory, to_shared_memory
from reelabel.sampling.options import Sampling


@pytest.fixture
def keyframes(make_clip):
    return extract_keyframes(make_clip(), sampling=Sampling(num_frames=4), limits=Limits())


def segments(pid):
    return list(Path("/dev/shm").glob(f"reelabel-{pid}-*"))


def test_frames_arrive_whole_and_leave_nothing_behind(keyframes):
    large = replace(keyframes, images=np.repeat(keyframes.images, 8, axis=1))

    sent = to_shared_memory(large)

    assert isinstance(sent, SharedFrames)
    assert len(segments(os.getpid())) == 1
    got = from_shared_memory(sent)
    assert segments(os.getpid()) == []
    np.testing.assert_array_equal(got.images, large.images)
    assert got.picks.tolist() == keyframes.picks.tolist()


def test_small_frames_go_through_the_pipe(keyframes):
    small = replace(keyframes, images=keyframes.images[:, :8, :8])

    assert to_shared_memory(small) is small
    assert from_shared_memory(small) is small


def test_frames_go_through_the_pipe_where_there_is_no_room_for_them(keyframes, monkeypatch, tmp_path):
    monkeypatch.setattr(shm_transfer, "SHARED_MEMORY", tmp_path / "missing")
    large = replace(keyframes, images=np.repeat(keyframes.images, 8, axis=1))

    assert to_shared_memory(large) is large


def test_a_pool_hands_over_what_its_child_decoded(make_clip):
    path, sampling = make_clip(size=(320, 240)), Sampling(num_frames=4)

    with DecodePool(processes=1, timeout_s=30, memory_mib=2048, threads=2) as pool:
        child = pool._run(os.getpid)
        got = pool.extract(path, sampling=sampling, limits=Limits())

    np.testing.assert_array_equal(got.images, extract_keyframes(path, sampling=sampling, limits=Limits()).images)
    assert segments(child) == []
