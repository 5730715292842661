"""What the engine's settings are chosen by is read from the model and the machine."""

from reelabel_engine.protocol import EngineConfig
from reelabel_engine.tuning import ModelProfile, read_model_profile, tune_engine
from tasks.model.identity import TINY_MODEL


def test_the_dimensions_of_a_model_are_read_from_its_configuration():
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32", num_frames=16, max_pixels=56 * 56)

    shape = read_model_profile(config)

    assert shape == ModelProfile(kv_bytes=2048, widest_bytes=4 * 2 * 384 * 4, max_tokens=2048, frames_per_token=2)
    assert shape.video_tokens(config) == 32


def test_the_tiny_model_is_tuned_on_this_machine():
    tuning = tune_engine(EngineConfig(model=str(TINY_MODEL), max_pixels=56 * 56))

    assert "prompts up to 2,048 tokens" in tuning.values
    assert tuning.reason
