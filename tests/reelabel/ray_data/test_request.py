"""Requests for Ray Data's LLM processor, of which no Ray is needed to make them."""

import json
import pickle

import numpy as np
import pytest

from reelabel import PrepareRequest
from reelabel.errors import ConfigurationError
from reelabel.integrations.ray_data.prepare import close_worker
from tests.reelabel.ray_data.conftest import WEB

TEXT = {"type": "text", "text": "What happens?"}
OPTIONS = {"sampling": {"num_frames": 4}, "web": WEB}


def messages_about(*uris):
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [*({"type": "video_url", "video_url": {"url": uri}} for uri in uris), TEXT]},
    ]


@pytest.fixture(scope="module")
def prepare():
    prepare = PrepareRequest(**OPTIONS)
    yield prepare
    close_worker(prepare._prepare)


@pytest.mark.parametrize("form", [lambda messages: messages, json.dumps, lambda messages: np.array(messages, object)])
def test_videos_of_messages_become_multimodal_data_and_marks(prepare, make_clip, form):
    path = str(make_clip())

    added = prepare({"id": 7, "messages": form(messages_about(path, path))})

    assert added["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "video"}, {"type": "video"}, TEXT]},
    ]
    [(frames, metadata), (again, _)] = added["multimodal_data"]["video"]
    assert (frames.shape, metadata["do_sample_frames"]) == ((4, 56, 56, 3), False)
    np.testing.assert_array_equal(frames, again)
    assert [meta["source"] for meta in added["video_meta"]] == [path, path]
    assert "__inference_error__" not in added


def test_a_request_about_a_video_that_fails_has_its_error_and_no_frames(prepare, make_clip):
    added = prepare({"messages": messages_about(str(make_clip()), "/gone.mp4")})

    assert added["__inference_error__"].startswith("There is no video at /gone.mp4")
    assert [meta["error_type"] for meta in added["video_meta"]] == ["", "video_missing"]
    assert "multimodal_data" not in added


def test_a_request_without_videos_is_left_as_it_is(prepare):
    assert prepare({"messages": messages_about()}) == {"video_meta": None}


def test_a_column_may_name_the_video_of_a_request_that_is_made_of_the_row(make_clip):
    def ask(row):
        return {"messages": [{"role": "user", "content": [{"type": "video"}, TEXT]}], "row_id": row.pop("id")}

    row = {"id": 7, "video_uri": str(make_clip())}
    prepare = pickle.loads(pickle.dumps(PrepareRequest(prepare_nothing, **OPTIONS)))
    added = PrepareRequest(ask, **OPTIONS)(row)

    assert added["row_id"] == row["id"] == 7
    assert added["messages"][0]["content"] == [{"type": "video"}, TEXT]
    assert len(added["multimodal_data"]["video"]) == len(prepare(row)["multimodal_data"]["video"]) == 1


def prepare_nothing(_row):
    return {}


def test_videos_can_be_left_to_others():
    row = {"messages": messages_about("/gone.mp4")}

    assert PrepareRequest(prepare_nothing, has_video=False)(row) == {}


def test_options_are_those_of_prepare_video():
    with pytest.raises(ConfigurationError, match=r"sampling\.num_frames"):
        PrepareRequest(sampling={"num_frames": 0})
    with pytest.raises(TypeError, match="pack_for_model"):
        PrepareRequest(pack_for_model=False)
    with pytest.raises(TypeError, match="frames"):
        PrepareRequest(frames=8)
