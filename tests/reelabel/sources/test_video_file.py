"""A local video is the file that was checked: whatever happens to its path, nothing outside allowed folders is read."""

import os
import threading
from contextlib import contextmanager
from itertools import cycle

import numpy as np
import pytest

from reelabel.errors import JobError, ObjectChangedError, ObjectMissingError, ReelabelError, VideoRefusedError
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import stat_video
from tests.clips import make_clip

__all__ = ["make_clip"]

INSIDE, OUTSIDE = b"inside " * 100, b"outside" * 100
FLIP_S = 0.0005


@pytest.fixture
def folders(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder, data in ((inside, INSIDE), (outside, OUTSIDE)):
        (folder / "real").mkdir(parents=True)
        (folder / "real" / "video.mp4").write_bytes(data)
    return inside, outside


@contextmanager
def flipping(link, targets):
    """Let a link lead to one target after the other, until the end of a `with` block."""
    is_over = threading.Event()

    def flip():
        for target in cycle(targets):
            spare = link.with_suffix(".spare")
            spare.symlink_to(target)
            spare.replace(link)
            if is_over.wait(FLIP_S):
                return

    link.symlink_to(targets[0])
    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_that_is_swapped_repeatedly_never_leads_outside(folders, what):
    inside, outside = folders
    link = inside / "link"
    suffix = "" if what == "folder" else "video.mp4"
    path = link / "video.mp4" if what == "folder" else link
    store, read, refused = ObjectStore(allow_roots=(inside,)), 0, 0

    with flipping(link, [folder / "real" / suffix for folder in (inside, outside)]):
        for _ in range(2000):
            try:
                with store.open(str(path)) as file:
                    assert file.read(0, 1000) == INSIDE
                    read += 1
            except ReelabelError:
                refused += 1

    assert read > 0
    assert refused > 0


def test_frames_come_from_the_file_inside(make_clip, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder, frames in ((inside, 24), (outside, 48)):
        folder.mkdir()
        data = make_clip(frames=frames).read_bytes()
        padding = 50_000 - len(data)  # the same size and time: only the way there tells them apart
        (folder / "clip.mp4").write_bytes(data + padding.to_bytes(4) + b"free" + bytes(padding - 8))
        os.utime(folder / "clip.mp4", (0, 0))
    link, objects, seen, refused = inside / "link.mp4", ObjectStore(allow_roots=(inside,)), [], 0
    with DecodePool(processes=1, timeout_s=30, memory_mib=2048) as pool:
        reader = VideoReader(objects=objects, pool=pool, limits=Limits())
        with flipping(link, [inside / "clip.mp4", outside / "clip.mp4"]):
            for _ in range(150):
                try:
                    info = stat_video(objects, str(link))
                    seen.append(reader.fetch(info, Sampling(num_frames=4)).frames.selection.total_frames)
                except JobError:
                    refused += 1

    assert set(seen) == {24}
    assert refused > 0


def test_links_that_stay_inside_are_followed_and_others_are_refused(folders, tmp_path):
    inside, outside = folders
    (inside / "there").symlink_to("real")
    (inside / "up").symlink_to("../inside/real/video.mp4")
    (inside / "out").symlink_to(outside / "real" / "video.mp4")
    (tmp_path / "root").symlink_to(inside)
    for root, path in (
        (inside, inside / "there" / "video.mp4"),
        (inside, inside / "up"),
        (tmp_path / "root", inside / "real" / "video.mp4"),
        (inside, tmp_path / "root" / "real" / "video.mp4"),
    ):
        with ObjectStore(allow_roots=(outside / "real" / "none", root)).open(str(path)) as file:
            assert file.read(0, 1000) == INSIDE
    for path in (inside / "out", outside / "real" / "video.mp4", inside / ".." / "outside" / "real" / "video.mp4"):
        with (
            pytest.raises(VideoRefusedError, match=r"outside extract\.allow_roots"),
            ObjectStore(allow_roots=(inside,)).open(str(path)),
        ):
            pass


@pytest.mark.parametrize("roots", [(), ("/",)], ids=["anywhere", "below a root"])
def test_only_regular_files_are_opened_and_nothing_blocks(tmp_path, roots):
    os.mkfifo(tmp_path / "pipe.mp4")

    for path in (tmp_path / "pipe.mp4", tmp_path, "/dev/zero", tmp_path / "missing.mp4"):
        with pytest.raises(ObjectMissingError), ObjectStore(allow_roots=roots).open(str(path)):
            pass


@pytest.mark.parametrize("limit", [{"allow_roots": "/videos"}, {"buckets": "videos"}])
def test_a_string_is_no_list_of_folders_or_buckets(limit):
    with pytest.raises(TypeError, match="are lists"):
        ObjectStore(**limit)


def test_a_file_modified_during_reading_is_noticed(folders):
    path = folders[0] / "real" / "video.mp4"

    with ObjectStore().open(str(path)) as file:
        file.check_unchanged()
        path.write_bytes(b"other")
        with pytest.raises(ObjectChangedError, match="was replaced while it was being read"):
            file.check_unchanged()


def test_an_open_file_that_is_replaced_keeps_its_content(make_clip):
    path = make_clip(frames=24)
    with DecodePool(processes=1, timeout_s=30, memory_mib=2048) as pool, ObjectStore().open(str(path)) as file:
        make_clip("other.mp4", frames=48).replace(path)

        got = pool.extract(file.as_video(), sampling=Sampling(), limits=Limits())

        file.check_unchanged()
        assert got.selection.total_frames == 24
        assert np.isfinite(got.selection.time_s).all()
