import pytest

from flows.run import make_spec
from infra.errors import ConfigurationError
from infra.settings import Settings
from tasks.model.identity import TINY_MODEL, read_model_card


@pytest.fixture
def card():
    return read_model_card(str(TINY_MODEL), revision=None)


def test_sampling_settings_reach_the_spec(card, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_SAMPLER", "dynamic")
    monkeypatch.setenv("REELABEL_SAMPLING_MAX_DURATION_S", "60")
    monkeypatch.setenv("REELABEL_SAMPLING_DROP_SIMILAR", "0.95")

    sampling = make_spec(card, Settings()).sampling

    assert (sampling.sampler, sampling.max_duration_s, sampling.drop_similar) == ("dynamic", 60, 0.95)
    assert sampling.size_multiple_px == card.size_multiple_px


def test_settings_that_do_not_go_together_are_named(card, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_FPS", "2")

    with pytest.raises(ConfigurationError, match="the sampler keyframes takes no fps"):
        make_spec(card, Settings())
