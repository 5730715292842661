"""`PrepareVideo` on batches as plain dictionaries, for which no Ray is needed: frames, segments, and failures."""

import errno
import json
import multiprocessing
import pickle
import signal
import threading
import time
import warnings

import numpy as np
import pytest

from benchmarks.media.matrix import Cell
from reelabel import PrepareVideo
from reelabel.errors import SandboxUnavailableError
from reelabel.extract import extract_local
from reelabel.integrations.ray_data import prepare as preparation
from reelabel.integrations.ray_data.prepare import get_worker, parse_sampling
from reelabel.options import Limits
from tests.clips import blank_packet
from tests.only_child import LOCKS, locks_of, only_child
from tests.open_descriptors import open_descriptors
from tests.reelabel.sandbox.child import LANDLOCK_CREATE_RULESET, refuse, result_of, run_child


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
    before = len(open_descriptors())

    kept += [prepare({"video_uri": [path]})["video"][0][0] for _ in range(8)]

    assert len(open_descriptors()) <= before
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
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=_send_errors, args=(prepare, batch, sender))
        child.start()
        answers = receiver.poll(60)

    child.kill()
    assert answers
    assert receiver.recv() == [""]


def _send_errors(prepare, batch, sender):
    try:
        sender.send([meta["error"] for [meta] in prepare(batch)["video_meta"]])
    except BaseException as error:
        sender.send(repr(error))
        raise


def test_videos_are_decoded_in_a_locked_process_or_refused(make_clip):
    prepared, without_landlock = (
        result_of(run_child(prepare_in_locked_process, path=str(make_clip()), refused=refused))
        for refused in ([], [LANDLOCK_CREATE_RULESET])
    )

    assert prepared == LOCKS
    assert without_landlock.startswith("Decoding processes cannot be locked, as ")


def test_a_cell_may_hold_the_bytes_of_a_video(preparing, make_clip):
    path = make_clip()
    data = path.read_bytes()
    cells = [
        path,
        data,
        {"bytes": data, "path": None},
        {"bytes": None, "path": str(path)},
        bytearray(data),
        b"no video",
        3,
    ]

    got = preparing()({"video_uri": cells})

    for [video] in got["video"][1:5]:
        np.testing.assert_array_equal(video, got["video"][0][0])
    assert [meta["source"] for [meta] in got["video_meta"]] == [str(path), "", "", str(path), "", "", ""]
    assert [meta["error_type"] for [meta] in got["video_meta"][5:]] == ["video_unreadable", "video_refused"]
    assert got["video_meta"][6][0]["error"].startswith("video_uri is of type int; give a path, a URI, or the bytes")


def test_an_interrupted_batch_leaves_its_videos_and_the_next_one_does_not_wait_for_them(preparing, make_clip, server):
    clip = make_clip()
    slow = [server.add(f"/{number}", body=clip.read_bytes(), pause_s=1) for number in range(20)]
    prepare = preparing(max_concurrency=1)
    prepare({"video_uri": [str(clip)]})

    threading.Timer(0.5, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        prepare({"video_uri": slow})
    before = time.monotonic()
    [[meta]] = prepare({"video_uri": [str(clip)]})["video_meta"]

    assert not meta["failed"]
    assert time.monotonic() - before < 10
