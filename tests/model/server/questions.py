"""What a server is asked: about two videos, about one of them at another frame rate, and about a shorter one."""

import pytest

from reelabel.errors import ConfigurationError
from reelabel_engine.protocol import Batch
from tests.model.factories import frame_file, question
from tests.vllm_server import gate

SHAPES = ("square", "circle", "triangle", "cross")
BATCH = Batch(
    frame_files={
        "v": frame_file(1),
        "w": frame_file(2),
        "slow": frame_file(1, every_s=7.5),
        "short": frame_file(3, every_s=1 / 12, lasts_s=8 / 12),  # eight frames, shown as sixteen
    },
    questions=(
        question(),
        question("What shape is it?", SHAPES, video_id="w", system_prompt="Look closely."),
        question(choices=("red", "green"), scoring="text"),
        question("What shape is it?", SHAPES),
        question(choices=("red", "green"), scoring="text", video_id="slow"),
        question(video_id="short"),
    ),
)


def check_offers(url, make_backend):
    """Check that frames go as the server takes them, and that a refusal says how to start it."""

    def without_plugin(_path, body):
        return (400, "Could not open video stream") if "arrow.file" in str(body) else None

    def without_trust(path, body):
        if body and "media_io_kwargs" in body:
            return 400, "Per-request media_io_kwargs are disabled"
        return without_plugin(path, body)

    assert "frames as frame_file, logprobs of any token" in make_backend(url).wait_ready().tuning
    with gate(url, without_plugin) as other:
        assert "frames as png, logprobs of any token" in make_backend(other).wait_ready().tuning
    with (
        gate(url, without_trust) as other,
        pytest.raises(ConfigurationError, match=r"kwargs are disabled.*--trust-request-mm-kwargs"),
    ):
        make_backend(other).wait_ready()
