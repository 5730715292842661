"""`PrepareVideo` on a real Ray on this machine."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL.Image import Image

from reelabel import PrepareVideo
from reelabel.extract import extract_local
from reelabel.integrations.ray_data.prepare import get_worker, parse_sampling
from reelabel.integrations.vllm.video_input import video_input
from reelabel.options import Limits
from tests.reelabel.ray_data.conftest import LOOK, WEB, WHOLE, starting_ray
from tests.wait import until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ray")]

OPTIONS = {"sampling": {"num_frames": 4}, "web": WEB}


@pytest.fixture(scope="module")
def ray():
    with starting_ray(cpus=2) as ray:
        yield ray


def test_actors_yield_arrays_and_download_one_address_once(ray, make_clip, server):
    body = make_clip().read_bytes()
    uri = server.add("/clip.mp4", body=body, pause_s=0.02)
    rows = [{"id": row, "video_url": f"{server.url}/gone.mp4" if row == 2 else uri} for row in range(6)]
    actors = ray.data.ActorPoolStrategy(size=1)

    got = ray.data.from_items(rows, override_num_blocks=1).map_batches(
        PrepareVideo, fn_constructor_kwargs=OPTIONS | {"output_format": "numpy"}, batch_size=6, compute=actors
    )

    by_id = {row["id"]: row for row in got.take_all()}
    assert [by_id[row]["video"][0].shape for row in range(6)] == [
        (0, 0, 0, 3) if row == 2 else (4, 56, 56, 3) for row in range(6)
    ]
    assert [by_id[row]["video_meta"][0]["error_type"] for row in (1, 2)] == ["", "video_missing"]
    assert server.requests("/clip.mp4") == [LOOK, WHOLE]


def test_chat_messages_become_input_of_our_engine(ray, make_clip):
    path = make_clip()
    messages = [[{"role": "user", "content": [{"type": kind, kind: url}]}] for kind, url in _parts(path)]
    expected, metadata = video_input(extract_local(path, sampling=parse_sampling(OPTIONS["sampling"]), limits=Limits()))

    rows = ray.data.from_items([{"messages": message} for message in messages], override_num_blocks=3)
    got = rows.map_batches(PrepareVideo(**OPTIONS, pack_for_model=True), batch_size=1).take_all()

    whole = [row["video"][0] for row in got if not row["video_meta"][0]["failed"]]
    assert [found for _, found in whole] == [metadata] * 2
    for frames, _ in whole:
        np.testing.assert_array_equal(frames, expected)


def test_blocks_with_and_without_videos_have_columns_of_one_type(ray, make_clip):
    text = {"type": "text", "text": "What happens?"}
    videos = [[], ["/gone.mp4"], [str(make_clip()), "/gone.mp4"]]
    rows = [
        {"messages": json.dumps([{"role": "user", "content": [text, *({"type": "video", "video": v} for v in each)]}])}
        for each in videos
    ]

    prepared = ray.data.from_items(rows, override_num_blocks=3).map_batches(PrepareVideo(**OPTIONS), batch_size=1)
    again = prepared.map_batches(PrepareVideo(**OPTIONS, bypass_if_frames_present=True), batch_size=3)

    for got in (prepared.take_all(), again.take_all()):
        failed = [[meta["failed"] for meta in row["video_meta"] or []] for row in got]
        counts = [[len(video) for video in row["video"] or []] for row in got]
        assert sorted(failed, key=len) == [[], [True], [False, True]]
        assert sorted(counts, key=len) == [[], [0], [4, 0]]


def test_tasks_yield_images_and_their_decoding_processes_end_with_ray(ray, make_clip):
    prepare = PrepareVideo(**OPTIONS)

    def prepare_with_child(batch):
        return prepare(batch) | {"child": [max(get_worker(prepare)._pool.process_ids)]}

    rows = ray.data.from_items([{"video_uri": str(make_clip())}] * 4, override_num_blocks=4)
    got = rows.map_batches(prepare_with_child, batch_size=1).take_all()
    children = {row["child"] for row in got}

    assert all(isinstance(image, Image) and image.size == (56, 56) for row in got for image in row["video"][0])
    assert len(children) <= 2  # one for each of Ray's processes, however many tasks
    ray.shutdown()
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def _parts(path):
    return [("video_url", {"url": str(path)}), ("video", str(path)), ("video_url", {"url": "/gone.mp4"})]
