"""Batches as plain dictionaries of columns; no Ray is needed for them."""

import errno
import inspect
import json
import multiprocessing
import pickle
import socket
import struct
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL.Image import fromarray

from benchmarks.media.matrix import Cell
from reelabel import PrepareVideo
from reelabel.errors import ConfigurationError, SandboxUnavailableError
from reelabel.extract import extract_local
from reelabel.integrations.ray_data import prepare as preparation
from reelabel.integrations.ray_data.cells import object_column
from reelabel.integrations.ray_data.frames_present import frames_of
from reelabel.integrations.ray_data.prepare import get_worker, parse_sampling
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from tests.clips import blank_packet
from tests.only_child import LOCKS, locks_of, only_child
from tests.reelabel.sandbox.child import LANDLOCK_CREATE_RULESET, refuse, result_of, run_child

LOOK, WHOLE = "bytes=0-0", "bytes=0-"


def test_frames_equal_those_of_extract_and_other_columns_are_kept(preparing, make_clip):
    path = make_clip()
    expected = extract_local(path, sampling=parse_sampling({"num_frames": 4}), limits=Limits())

    got = preparing()({"id": np.array([7]), "video_uri": np.array([str(path)])})

    [[frames]], [[meta]] = got["video"], got["video_meta"]
    np.testing.assert_array_equal(frames, expected.unique[expected.shown])
    assert got["id"].tolist() == [7]
    assert {name: getattr(value, "tolist", lambda value=value: value)() for name, value in meta.items()} == {
        "video_size": [56, 56],
        "video_num_frames": 4,
        "frame_timestamps": expected.selection.time_s.tolist(),
        "frame_indices": expected.selection.frame_index.tolist(),
        "source": str(path),
        "deviation_s": expected.deviation_s.tolist(),
        "decode_note": "",
        "failed": False,
        "error_type": "",
        "error": "",
    }


@pytest.mark.parametrize(
    ("sampling", "note"),
    [
        pytest.param({"fps": 6, "max_frames": 8}, "6 frames per second would be 24 frames; 8 are shown", id="fewer"),
        pytest.param({"fps": 6}, "", id="all"),
        pytest.param({"fps": 60, "max_frames": 48}, "", id="every frame"),
    ],
)
def test_a_rate_that_would_be_too_many_frames_is_reported_in_its_row(preparing, make_clip, sampling, note):
    [[meta]] = preparing(sampling=sampling)({"video_uri": [str(make_clip())]})["video_meta"]

    assert meta["decode_note"].startswith(note)
    assert bool(meta["decode_note"]) == bool(note)


def test_a_picked_frame_that_is_missing_is_reported_in_its_row(preparing, make_clip):
    path = make_clip("clip.mkv", gop=1, codec="mjpeg", pix_fmt="yuvj420p")
    blank_packet(path, 20)

    got = preparing(sampling={"num_frames": 48})({"video_uri": np.array([str(path)])})

    [[frames]], [[meta]] = got["video"], got["video_meta"]
    assert len(frames) == 47
    assert "1 broken frame left out" in meta["decode_note"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(None, Sampling(sampler="fps", fps=3), id="3 frames per second"),
        pytest.param({"fps": 1}, Sampling(sampler="fps", fps=1), id="fps"),
        pytest.param({"num_frames": 8}, Sampling(sampler="num_frames", num_frames=8), id="number"),
        pytest.param({"sampler": "keyframes"}, Sampling(), id="any sampler"),
        pytest.param({"max_pixels": 10_000}, Sampling(sampler="fps", fps=3, max_pixels=10_000), id="size alone"),
        pytest.param(Sampling(sampler="qwen2_vl"), Sampling(sampler="qwen2_vl"), id="our own type"),
    ],
)
def test_sampling_may_be_given_in_ray_datas_terms_or_ours(given, expected):
    sides = {"max_pixels": expected.max_pixels or 602_112, "size_multiple_px": 28}

    assert parse_sampling(given) == replace(expected, **sides)


def test_times_count_from_the_start_of_a_video_whose_clock_starts_later(preparing):
    got = preparing()({"video_uri": [Cell("ts", "h264", "start-later").make()]})

    assert got["video_meta"][0][0]["frame_timestamps"][0] == 0


def test_a_row_about_a_segment_has_the_frames_of_that_segment(preparing, make_clip):
    path = make_clip(frames=48, fps=12)
    whole = extract_local(path, sampling=parse_sampling({"fps": 3}), limits=Limits())

    got = preparing(sampling={"fps": 3})(
        {"video_uri": [str(path)] * 3, "start_s": [np.nan, 1.0, 2.0], "end_s": [None, 2.0, 1.0]}
    )

    times_s = [meta["frame_timestamps"] for [meta] in got["video_meta"]]
    assert times_s[0].tolist() == whole.selection.time_s[whole.shown].tolist()
    assert len(times_s[1]) > 1
    assert all(1.0 <= time_s <= 2.0 for time_s in times_s[1])
    assert got["video_meta"][2][0]["error"] == "The segment from start_s 2.0 to end_s 1.0 is not valid; correct them."


def test_a_column_of_small_floats_has_nulls_too(preparing, make_clip):
    got = preparing()({"video_uri": [str(make_clip())], "start_s": np.array([np.nan], np.float32)})

    assert not got["video_meta"][0][0]["failed"]


@pytest.mark.parametrize("start_s", ["soon", True, np.inf])
def test_a_segment_is_given_by_numbers(preparing, make_clip, start_s):
    got = preparing()({"video_uri": [str(make_clip())], "start_s": [start_s]})

    assert got["video_meta"][0][0]["error"] == f"start_s is {start_s!r}; it must be a number of seconds."


def test_a_bad_video_fails_its_own_row(preparing, make_clip, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")

    got = preparing()({"video_uri": [str(tmp_path / "text.mp4"), str(make_clip()), str(tmp_path / "gone.mp4")]})

    assert [meta["failed"] for [meta] in got["video_meta"]] == [True, False, True]
    assert [meta["error_type"] for [meta] in got["video_meta"]] == ["video_unreadable", "", "video_missing"]
    assert [len(video) for [video] in got["video"]] == [0, 4, 0]
    assert "gone.mp4" in got["video_meta"][2][0]["error"]


def test_rows_about_one_video_share_no_pixels(preparing, make_clip):
    path = str(make_clip())

    [first], [second] = preparing(sampling={"sampler": "keyframes"})({"video_uri": [path, path]})["video"]
    before = second.copy()
    first[:] = 0

    assert np.array_equal(second, before)
    assert second.any()


def test_kept_frames_hold_no_descriptors(preparing, make_clip):
    path = str(make_clip())
    prepare = preparing(output_format="numpy", sampling={"sampler": "keyframes"})
    kept = [*prepare({"video_uri": [path]})["video"][0]]
    before = len(list(Path("/proc/self/fd").iterdir()))

    kept += [prepare({"video_uri": [path]})["video"][0][0] for _ in range(8)]

    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert all(np.array_equal(video, kept[0]) for video in kept)


def test_a_row_without_a_video_passes_through(preparing, make_clip):
    text = [{"role": "user", "content": "Hello."}]
    frames = np.ones((2, 28, 28, 3), np.uint8)
    batch = {
        "video_uri": [str(make_clip()), None, float("nan"), None],
        "messages": [None, text, json.dumps(text), None],
        "video": [None, None, None, frames],
    }

    got = preparing()(batch)

    decoded, *texts, held = zip(got["video"], got["video_meta"], strict=True)
    assert texts == [(None, None)] * 2
    for ([video], [meta]), count in ((decoded, 4), (held, 2)):
        assert len(video) == meta["video_num_frames"] == count
        assert not meta["failed"]
    assert held[0][0] is frames


def test_rows_without_a_column_that_names_a_video_pass_through_with_a_warning(preparing, caplog):
    got = preparing()({"path": ["a.mp4", "b.mp4"]})

    assert [*got["video"], *got["video_meta"]] == [None] * 4
    assert "none of their columns (path) names a video; that needs video_uri, video_url," in caplog.text


@pytest.mark.parametrize("column", ["video_uri", "video_uris"])
def test_a_uri_that_is_empty_is_a_failure(preparing, column):
    cells = [None, "", b"", float("nan"), {"bytes": None, "path": ""}]
    if column == "video_uris":
        cells = [None, *([cell] for cell in cells)]

    got = preparing()({column: cells})

    for [meta] in got["video_meta"]:
        assert meta["error_type"] == "video_refused"
        assert meta["error"] == f"{column}: empty; give a path, a URI, or the bytes of a video."


def test_how_far_each_frame_is_from_the_instant_it_was_chosen_for_is_reported(preparing, make_clip):
    path = make_clip()
    expected = extract_local(path, sampling=parse_sampling({"fps": 5}), limits=Limits())

    [[meta]] = preparing(sampling={"fps": 5})({"video_uri": [str(path)]})["video_meta"]

    assert meta["deviation_s"].tolist() == expected.deviation_s.tolist()
    assert len(meta["deviation_s"]) == meta["video_num_frames"]
    assert any(meta["deviation_s"])


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


def test_rows_with_frames_are_left_alone(preparing, make_clip, server):
    frames = np.zeros((2, 28, 56, 3), np.uint8)
    uri = server.add("/clip.mp4", body=make_clip().read_bytes())
    batch = {"video_uri": [uri, str(make_clip())], "video": [frames, None]}

    got = preparing(bypass_if_frames_present=True)(batch)

    assert got["video"][0][0] is frames
    assert server.requests("/clip.mp4") == []
    [[held], [decoded]] = got["video_meta"]
    assert (held["video_size"], held["video_num_frames"]) == ([56, 28], 2)
    assert decoded["video_num_frames"] == 4


@pytest.mark.parametrize("column", ["video", "video_frames"])
def test_frames_that_are_there_may_be_those_of_any_number_of_videos(preparing, column):
    array = np.zeros((3, 28, 56, 3), np.uint8)
    pictures = [fromarray(image) for image in array]
    cells = {
        "array": (array, [3]),
        "channels first": (array.transpose(0, 3, 1, 2), [3]),
        "images": ([*array], [3]),
        "Pillow's": (pictures, [3]),
        "packed": ((array, {"fps": 2.0}), [3]),
        "several": ([array, array[:1]], [3, 1]),
        "several of one size": (np.stack([array, array]), [3, 3]),
        "several, one empty": ([[], pictures], [0, 3]),
        "several packed": ([(array, {}), (array[:2], {})], [3, 2]),
    }
    held = object_column([cell for cell, _ in cells.values()])

    got = preparing(bypass_if_frames_present=True)({"video_uri": ["/gone.mp4"] * len(cells), column: held})

    counts = [[meta["video_num_frames"] for meta in metas] for metas in got["video_meta"]]
    sizes = [[meta["video_size"] for meta in metas] for metas in got["video_meta"]]
    assert dict(zip(cells, counts, strict=True)) == {name: expected for name, (_, expected) in cells.items()}
    assert sizes == [[[56, 28] if count else [0, 0] for count in row] for row in counts]
    assert [[len(frames_of(video)) for video in videos] for videos in got["video"]] == counts


def test_a_column_of_frames_cannot_name_videos(preparing):
    got = preparing()({"video": ["/a.mp4", b"mp4", {"bytes": b"mp4", "path": None}, None, []]})

    errors = [meta["error"] for metas in got["video_meta"][:3] for meta in metas]
    assert errors == [
        f"video is of type {name}, not frames; name the column video_uri." for name in ("str", "bytes", "dict")
    ]
    assert [*got["video_meta"][3:]] == [None, None]


def test_a_row_may_name_its_videos_in_chat_messages(preparing, make_clip):
    path = str(make_clip())
    messages = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": path}}]}]
    twice = [{"role": "user", "content": [*messages[0]["content"], *messages[0]["content"]]}]

    got = preparing()({"messages": [json.dumps(messages), messages, "{", twice]})

    assert [[len(video) for video in videos] for videos in got["video"]] == [[4], [4], [0], [4, 4]]
    assert [meta["source"] for meta in got["video_meta"][3]] == [path, path]
    assert got["video_meta"][2][0]["error"] == "messages: the text is not JSON."


def test_messages_are_read_for_their_videos_alone(preparing, make_clip):
    path = str(make_clip())
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [audio, {"type": "video_url", "video_url": {"url": path}}]},
        {"role": "assistant", "content": "A red square."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "user", "content": [{"type": "video", "video": "/gone.mp4"}, {"type": "text", "text": "And here?"}]},
    ]

    got = preparing()({"messages": [messages, json.dumps(messages)]})

    for metas in got["video_meta"]:
        assert [meta["source"] for meta in metas] == [path, "/gone.mp4"]
        assert [meta["error_type"] for meta in metas] == ["", "video_missing"]


@pytest.mark.parametrize("column", ["video_uris", "video_urls"])
def test_a_row_may_name_several_videos_of_which_a_bad_one_fails_alone(preparing, make_clip, column):
    first, other = str(make_clip(name="a.mp4")), str(make_clip(name="b.mp4", frames=30))
    pictured = [
        {"type": "image_url", "image_url": {"url": "p.png"}},
        {"type": "video_url", "video_url": {"url": first}},
    ]
    batch = {
        column: [[other, "/gone.mp4", first, None], [first], [], None],
        "messages": [None, None, None, [{"role": "user", "content": pictured}]],
        "start_s": [None, None, None, 1.0],
    }

    got = preparing(pack_for_model=True)(batch)

    frames, metas = got["video"][0], got["video_meta"][0]
    assert [meta["error_type"] for meta in metas] == ["", "video_missing", "", "video_refused"]
    assert [len(pixels) for pixels, _ in frames] == [4, 0, 4, 0]
    assert metas[0]["frame_timestamps"].tolist() != metas[2]["frame_timestamps"].tolist()
    np.testing.assert_array_equal(frames[2][0], got["video"][1][0][0])
    assert got["video_meta"][2][0]["error"] == f"{column} is not a list of URIs; give at least one."
    assert got["video_meta"][3][0]["frame_timestamps"][0] == 1.0  # images are left alone


def test_a_segment_of_several_videos_is_refused(preparing, make_clip):
    got = preparing()({"video_uris": [[str(make_clip())] * 2], "end_s": [2.0]})

    assert got["video_meta"][0][0]["error"] == "start_s and end_s are given with several videos; leave them out."


def test_frames_that_are_there_are_sampled_again_in_their_format(preparing, make_clip):
    path = str(make_clip(frames=48, fps=12))
    every = {"sampling": {"sampler": "num_frames", "num_frames": -1}}
    again = {"sampling": {"num_frames": 5}, "sample_frames_present": True}
    first = preparing(**every, output_format="numpy")({"video_uri": [path]})
    packed = preparing(**every, pack_for_model=True)({"video_uri": [path]})
    direct = preparing(sampling={"num_frames": 5}, output_format="numpy")({"video_uri": [path]})
    direct_packed = preparing(sampling={"num_frames": 5}, pack_for_model=True)({"video_uri": [path]})

    got = preparing(**again)(first)
    [[(frames, told)]] = preparing(**again)({"video_frames": packed["video"]})["video"]

    np.testing.assert_array_equal(got["video"][0][0], direct["video"][0][0])
    for name, value in direct["video_meta"][0][0].items():
        np.testing.assert_array_equal(got["video_meta"][0][0][name], value, name)
    np.testing.assert_array_equal(frames, direct_packed["video"][0][0][0])
    assert told["frames_indices"] == direct_packed["video"][0][0][1]["frames_indices"]


def test_frames_of_several_videos_are_sampled_again_each(preparing, make_clip):
    uris = [[str(make_clip(name="a.mp4")), "/gone.mp4", str(make_clip(name="b.mp4"))]]
    first = preparing(sampling={"fps": 6})({"video_uris": uris})

    got = preparing(sampling={"fps": 2}, sample_frames_present=True)(first)

    assert [len(video) for video in first["video"][0]] == [24, 0, 24]
    assert [len(video) for video in got["video"][0]] == [8, 0, 8]
    assert got["video_meta"][0][0]["frame_timestamps"] == pytest.approx(np.arange(8) / 2, abs=0.1)
    assert got["video_meta"][0][1]["error_type"] == "video_missing"


def test_frames_without_times_can_be_counted_but_not_timed(preparing):
    frames = np.arange(10, dtype=np.uint8).repeat(28 * 28 * 3).reshape(10, 28, 28, 3)

    counted, several = preparing(sampling={"num_frames": 4}, sample_frames_present=True)(
        {"video": object_column([frames, [frames[:0], [*frames]]])}
    )["video"]
    timed = preparing(sampling={"fps": 1}, sample_frames_present=True)({"video": [frames]})

    assert counted[0][:, 0, 0, 0].tolist() == [0, 3, 6, 9]
    assert [len(video) for video in several] == [0, 4]
    [[meta]] = timed["video_meta"]
    assert meta["error_type"] == "sampling_refused"
    assert "times of the frames are unknown" in meta["error"]


def test_messages_may_come_as_the_array_that_arrow_makes_of_them(preparing, make_clip):
    parts = np.array([{"type": "video_url", "video_url": {"url": str(make_clip())}}], object)
    messages = [{"role": "system", "content": "Look closely."}, {"role": "user", "content": parts}]

    got = preparing()({"messages": [np.array(messages, object)]})

    assert [len(video) for [video] in got["video"]] == [4]


def test_an_unpickled_copy_shares_the_processes_of_the_original(preparing):
    prepare = preparing()

    copy = pickle.loads(pickle.dumps(prepare))

    assert get_worker(copy) is get_worker(prepare)


def prepare_in_locked_process(*, path, refused):
    """Prepare a video where locking is required; return how the process is locked, or why none can be."""
    for call in refused:
        refuse(call, errno.EOPNOTSUPP)
    with PrepareVideo(sampling={"num_frames": 4}, processes=1, sandbox="require") as prepare:
        try:
            prepare({"video_uri": [path]})
        except SandboxUnavailableError as error:
            return error.message
        return locks_of(only_child(get_worker(prepare)._pool))


def test_a_process_that_is_forked_while_a_thread_starts_decoding_does_not_wait_for_that_thread(preparing, make_clip):
    prepare, batch = preparing(), {"video_uri": [str(make_clip())]}
    with preparation._workers_lock, warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        told, tell = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=_tell_of, args=(prepare, batch, tell))
        child.start()
        answers = told.poll(60)

    child.kill()
    assert answers
    assert told.recv() == [""]


def test_closing_ends_a_read_of_a_silent_server(preparing):
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as threads:
        prepare = preparing(timeout_s=300)
        prepared = threads.submit(prepare, {"video_uri": [f"http://127.0.0.1:{silent.getsockname()[1]}/clip.mp4"]})
        connection, _ = silent.accept()

        prepare.close()

        assert prepared.result(60)["video_meta"][0][0]["error_type"] == "reading_ended"
        connection.close()


def _tell_of(prepare, batch, tell):
    try:
        tell.send([meta["error"] for [meta] in prepare(batch)["video_meta"]])
    except BaseException as error:
        tell.send(repr(error))
        raise


def test_videos_are_decoded_in_a_locked_process_or_refused(make_clip):
    prepared, without_landlock = (
        result_of(run_child(prepare_in_locked_process, path=str(make_clip()), refused=refused))
        for refused in ([], [LANDLOCK_CREATE_RULESET])
    )

    assert prepared == LOCKS
    assert without_landlock.startswith("Decoding processes cannot be locked, as ")


def test_a_batch_that_is_no_dictionary_is_a_usage_error(preparing):
    with pytest.raises(ConfigurationError, match="batch_format"):
        preparing()([{"video_uri": "a.mp4"}])


def test_a_cell_may_hold_the_bytes_of_a_video(preparing, make_clip):
    path = make_clip()
    data = path.read_bytes()
    cells = [path, data, {"bytes": data, "path": None}, {"bytes": None, "path": str(path)}, b"no video", 3]

    got = preparing()({"video_uri": cells})

    for [video] in got["video"][1:4]:
        np.testing.assert_array_equal(video, got["video"][0][0])
    assert [meta["source"] for [meta] in got["video_meta"]] == [str(path), "", "", str(path), "", ""]
    assert [meta["error_type"] for [meta] in got["video_meta"][4:]] == ["video_unreadable", "video_refused"]
    assert got["video_meta"][5][0]["error"].startswith("video_uri is of type int; give a path, a URI, or the bytes")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"video_uri": "a.mp4"}, "The column video_uri is a single str; put it in a list"),
        ({"video_uri": ["a.mp4"], "start_s": [1, 2]}, r"differ in length \(video_uri 1, start_s 2\)"),
    ],
    ids=["one row", "lengths"],
)
def test_a_column_is_a_list_with_a_value_for_every_row(preparing, batch, message):
    with pytest.raises(ConfigurationError, match=message):
        preparing()(batch)


@pytest.mark.parametrize(
    "wrong",
    [object(), [1], {"unknown": 1}, -1.5, float("nan"), b"x"],
    ids=["an object", "a list", "a dict", "-1.5", "nan", "bytes"],
)
@pytest.mark.parametrize("option", inspect.signature(PrepareVideo).parameters)
def test_an_option_that_is_not_valid_is_named(option, wrong):
    with pytest.raises(ConfigurationError, match=rf"^Invalid arguments of PrepareVideo: {option}\b"):
        PrepareVideo(**{option: wrong})


def test_wrong_options_are_named_together():
    with pytest.raises(ConfigurationError, match="s3: must be a group of options; limits: must be a group of options"):
        PrepareVideo(s3=0, limits=[])
    with pytest.raises(TypeError, match="samplings"):
        PrepareVideo(samplings={"fps": 1})
    with pytest.raises(ConfigurationError, match=r"sampling\.num_frames: .*; cache_mode: must be 'auto'"):
        PrepareVideo(sampling={"num_frames": 0}, cache_mode="ram")
    with pytest.raises(ConfigurationError, match="sampling: must be a dictionary or a Sampling, not int"):
        PrepareVideo(sampling=3)
    with pytest.raises(ConfigurationError, match="the sampler keyframes chooses from a file, not from frames"):
        PrepareVideo(sampling={"sampler": "keyframes"}, sample_frames_present=True)
    with pytest.raises(ConfigurationError, match="exclude each other"):
        PrepareVideo(bypass_if_frames_present=True, sample_frames_present=True)
    with pytest.raises(ConfigurationError, match="escalate_below cannot be used without jobs and answers"):
        PrepareVideo(sampling={"sampler": "keyframes", "escalate_below": 0.5})


def test_pillow_is_asked_for_when_images_will_be_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)

    with pytest.raises(ConfigurationError, match="The output format pil needs a package that is not installed"):
        PrepareVideo()
    PrepareVideo(output_format="numpy")
    PrepareVideo(pack_for_model=True)
