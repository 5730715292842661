"""Options of vLLM's own loaders mean what they mean there, or are refused by name."""

import pytest

from reelabel.errors import ConfigurationError
from reelabel.integrations.vllm import decode
from reelabel.integrations.vllm.decode import translate_media_options
from reelabel.sampling.options import Sampling
from tests.clips import make_clip

__all__ = ["make_clip"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"sampler": "dynamic", "max_duration": 60}, {"sampler": "dynamic", "max_duration_s": 60}),
        ({"sampler": "fps", "frame_recovery": False}, {"sampler": "fps", "frame_recovery": False}),
        ({"sampler": "uniform", "fps": -1, "num_frames": -1}, {"sampler": "uniform", "fps": -1, "num_frames": -1}),
        ({"sampler": "openpangu", "fps": -1}, {"sampler": "openpangu", "fps": -1}),
        ({"sampler": "glm5_next", "fps": -1}, {"sampler": "glm5_next"}),
        ({"sampler": "llava_onevision2", "num_frames": -1}, {"sampler": "llava_onevision2", "num_frames": 32}),
        ({"sampler": "embedding_gemma2", "overflow_strategy": "uniform"}, {"sampler": "embedding_gemma2"}),
        ({"fps": -1, "max_duration": 300, "frame_recovery": False, "num_frames": 32}, {"num_frames": 32}),
        ({"sampler": "auto", "fps": -1, "max_duration": 300}, {"sampler": "auto", "fps": -1}),
        (
            {"sampler": "auto", "dense_sampler": "openpangu", "fps": -1, "frame_recovery": False},
            {"sampler": "auto", "dense_sampler": "openpangu", "fps": -1, "frame_recovery": False},
        ),
        ({"sampler": "opencv", "fps": -1, "max_duration": 300}, {"sampler": "opencv", "fps": -1}),
        ({"sampler": "glm5next", "fps": -1}, {"sampler": "glm5next"}),
        ({"sampler": "qwen2_vl", "max_frames": 5000}, {"sampler": "qwen2_vl", "max_frames": 768}),
        ({"sampler": "glmga", "max_frames": 768}, {"sampler": "glmga", "max_frames": 640}),
        ({"sampler": "uniform", "num_frames": 1000}, {"sampler": "uniform", "num_frames": 1000}),
        ({"backend": "pyav", "seek_mode": "exact", "device": "cpu"}, {}),
        ({"sampler": "molmo2", "max_fps": 3, "sampling_fps": 2}, {"sampler": "molmo2", "fps": 3}),
        ({"sampler": "molmo2", "max_fps": None}, {"sampler": "molmo2", "fps": -1}),
        (
            {"sampler": "molmo2", "frame_sample_mode": "fps", "max_fps": 3, "sampling_fps": 2},
            {"sampler": "molmo2", "frame_sample_mode": "fps", "fps": 2},
        ),
        (
            {"sampler": "molmo2", "frame_sample_mode": None, "num_frames": -1, "max_fps": 2},
            {"sampler": "molmo2", "frame_sample_mode": "every_frame"},
        ),
    ],
)
def test_an_option_of_vllm_means_what_it_means_there(theirs, ours):
    translated = translate_media_options(theirs)

    assert translated == ours
    Sampling(**translated)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "torchcodec"}, "backend: it is always pyav here; leave it out"),
        ({"num_ffmpeg_threads": 4}, "num_ffmpeg_threads: unknown option"),
        ({"seek_mode": "approximate"}, "seek_mode: it is always exact here; leave it out"),
        ({"temporal_patch_size": 4}, "temporal_patch_size: it is always 2 here; leave it out"),
        (
            {"max_duration": 9},
            "the sampler keyframes takes no max_duration; leave it out, or choose the sampler dynamic",
        ),
        ({"sampler": "dynamic", "max_duration": 9, "max_duration_s": 9}, "max_duration: it means the same as max_dura"),
        ({"sampler": "dynamic", "max_duration": 0}, "max_duration: must be greater than 0"),
        ({"fps": 2}, "the sampler keyframes takes no fps; leave it out"),
        ({"sampler": "embedding_gemma2", "max_frames": 200}, "takes a max_frames of at most 128, not 200"),
        ({"sampler": "fps", "frame_recovery": "perhaps"}, "frame_recovery: must be true or false"),
        ({"sampler": "qwen2_vl", "fps": -1}, "the sampler qwen2_vl takes no fps of -1"),
        ({"sampler": "uniform", "max_fps": 2}, "max_fps: unknown option"),
        ({"sampler": "molmo2", "max_fps": 2, "fps": 2}, "max_fps: it means the same as fps; leave one of them out"),
        ({"sampler": "molmo2", "max_fps": "fast"}, "max_fps: must be a number"),
        ({"sampler": "native"}, "native stands for a model's sampler, and no model is known here; name that sampler"),
    ],
)
def test_what_means_nothing_here_is_refused_by_name(make_clip, options, message):
    with pytest.raises(ConfigurationError, match=message):
        decode.decode_video(make_clip().read_bytes(), **options)
