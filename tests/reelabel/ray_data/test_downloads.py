"""How `PrepareVideo` reads videos from web servers."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.reelabel.ray_data.conftest import LOOK, WHOLE


def test_concurrent_requests_for_one_address_download_it_once(preparing, make_clip, server):
    uri = server.add("/clip.mp4", body=make_clip().read_bytes(), pause_s=0.05)
    prepare = preparing()

    with ThreadPoolExecutor(2) as threads:
        batches = list(threads.map(prepare, [{"video_url": [uri] * 5}] * 2))

    assert server.requests("/clip.mp4") == [LOOK, WHOLE]
    assert all(meta["video_num_frames"] == 4 for batch in batches for [meta] in batch["video_meta"])


def test_a_server_that_recovers_is_asked_again(preparing, make_clip, server):
    pages = [server.add(path, body=make_clip().read_bytes(), statuses=(500, 500)) for path in ("/patient", "/hasty")]

    patient = preparing()({"video_uri": [pages[0]]})
    hasty = preparing(retries=1)({"video_uri": [pages[1]]})

    assert not patient["video_meta"][0][0]["failed"]
    assert hasty["video_meta"][0][0]["error_type"] == "video_unavailable"
    assert "2 attempts" in hasty["video_meta"][0][0]["error"]


def test_a_silent_server_is_given_up(preparing, server, make_clip):
    silent = server.add("/silent", body=b"x", pause_s=2)

    got = preparing(timeout_s=0.2, retries=0)({"video_uri": [silent, str(make_clip())]})

    assert "ReadTimeoutError" in got["video_meta"][0][0]["error"]
    assert not got["video_meta"][1][0]["failed"]


def test_a_kept_copy_is_downloaded_once_for_all_samplings(preparing, make_clip, server, tmp_path):
    uri = server.add("/clip.mp4", body=make_clip().read_bytes())
    disk = {"cache_dir": tmp_path / "cache", "cache_mode": "disk"}

    first = preparing(**disk)({"video_uri": [uri]})
    other = preparing(**disk, sampling={"num_frames": 2})({"video_uri": [uri]})

    assert server.requests("/clip.mp4") == [LOOK, WHOLE, LOOK]
    assert [len(first["video"][0][0]), len(other["video"][0][0])] == [4, 2]
    assert len([path for path in (tmp_path / "cache").rglob("*") if path.is_file()]) == 1


def test_in_memory_nothing_is_written(preparing, make_clip, server, tmp_path):
    uri = server.add("/clip.mp4", body=make_clip().read_bytes())

    got = preparing(cache_dir=tmp_path / "cache", cache_mode="memory")({"video_uri": [uri]})

    assert len(got["video"][0][0]) == 4
    assert not (tmp_path / "cache").exists()


def test_by_default_a_long_file_is_read_in_parts_if_they_are_enough(preparing, make_clip, server):
    padding = 4 * 1024**2
    body = make_clip().read_bytes() + struct.pack(">I4s", 8 + padding, b"free") + bytes(padding)
    uri = server.add("/long.mp4", body=body)
    keyframes = {"sampling": {"sampler": "keyframes", "num_frames": 4}}

    in_parts = preparing(**keyframes)({"video_uri": [uri]})
    assert WHOLE not in server.requests("/long.mp4")
    whole = preparing(**keyframes, cache_mode="disk")({"video_uri": [uri]})

    assert WHOLE in server.requests("/long.mp4")
    np.testing.assert_array_equal(in_parts["video"][0][0], whole["video"][0][0])


def test_closing_ends_a_read_of_a_silent_server(preparing):
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as threads:
        prepare = preparing(timeout_s=300)
        prepared = threads.submit(prepare, {"video_uri": [f"http://127.0.0.1:{silent.getsockname()[1]}/clip.mp4"]})
        connection, _ = silent.accept()

        prepare.close()

        assert prepared.result(60)["video_meta"][0][0]["error_type"] == "reading_ended"
        connection.close()
