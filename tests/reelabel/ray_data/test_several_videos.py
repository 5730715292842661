"""Rows with several videos, chat messages, or frames that are there already."""

import json

import numpy as np
import pytest
from PIL.Image import fromarray

from reelabel.integrations.ray_data.cells import frames_of, object_column


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

    got = preparing()({"messages": [json.dumps(messages), messages, "{", twice, "[" * 100_000]})

    assert [[len(video) for video in videos] for videos in got["video"]] == [[4], [4], [0], [4, 4], [0]]
    assert [meta["source"] for meta in got["video_meta"][3]] == [path, path]
    assert got["video_meta"][2][0]["error"] == "messages: the text is not JSON."
    assert got["video_meta"][4][0]["error"] == "messages: nested too deeply."


def test_a_row_with_anything_in_its_columns_fails_alone(preparing, make_clip):
    frames, path = [np.zeros((4, 4, 3), np.uint8)] * 2, str(make_clip())
    packed = np.stack(frames), {"frames_indices": [0, 1], "fps": "fast"}
    rows = [
        {"video": frames, "video_meta": [{"frame_timestamps": ["early", "late"]}]},
        {"video": frames, "video_meta": 5},
        {"video": ()},
        {"video_uri": path, "start_s": 10**400},
        {"video_uri": path},
    ]
    batch = {name: [row.get(name) for row in rows] for name in ("video", "video_meta", "video_uri", "start_s")}
    sampling = {"sampler": "uniform", "num_frames": 2}

    got = preparing()(batch)
    again = preparing(sample_frames_present=True, sampling=sampling)({"video": [packed, frames]})

    assert [[meta["failed"] for meta in metas] for metas in got["video_meta"]] == [[True]] * 4 + [[False]]
    assert [[meta["failed"] for meta in metas] for metas in again["video_meta"]] == [[True], [False]]


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
    [[(frames, metadata)]] = preparing(**again)({"video_frames": packed["video"]})["video"]

    np.testing.assert_array_equal(got["video"][0][0], direct["video"][0][0])
    for name, value in direct["video_meta"][0][0].items():
        np.testing.assert_array_equal(got["video_meta"][0][0][name], value, name)
    np.testing.assert_array_equal(frames, direct_packed["video"][0][0][0])
    assert metadata["frames_indices"] == direct_packed["video"][0][0][1]["frames_indices"]


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


@pytest.mark.parametrize(
    ("known", "error"),
    [
        ({"frame_timestamps": [0.0, 2.0, 1.0]}, "The times of the frames fall, or are no numbers"),
        ({"frame_timestamps": [0.0, None, 1.0]}, "The times of the frames fall, or are no numbers"),
        ({"frame_indices": [0, 1]}, ""),
        (None, ""),
    ],
)
def test_frames_with_wrong_metadata_fail_alone_if_at_all(preparing, known, error):
    frames = np.zeros((3, 28, 28, 3), np.uint8)
    batch = {"video": [[frames], [(frames, {"frames_indices": [0], "fps": 1.0})]], "video_meta": [[known], None]}

    got = preparing(sampling={"num_frames": 2}, sample_frames_present=True)(batch)

    [[bad], [good]] = got["video_meta"]
    assert bad["error"].startswith(error)
    assert (bad["failed"], good["video_num_frames"]) == (bool(error), 2)


def test_messages_may_come_as_the_array_that_arrow_makes_of_them(preparing, make_clip):
    parts = np.array([{"type": "video_url", "video_url": {"url": str(make_clip())}}], object)
    messages = [{"role": "system", "content": "Look closely."}, {"role": "user", "content": parts}]

    got = preparing()({"messages": [np.array(messages, object)]})

    assert [len(video) for [video] in got["video"]] == [4]
