import pytest

from flows.run.backends import engine_config, make_backend, read_card
from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel.errors import ConfigurationError
from tasks.model.engine.fleet import EngineFleet
from tasks.model.engine.recovery import RecoveringEngine
from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.server.backend import ServerBackend

SERVER = {"model": {"backend": "openai", "name": str(TINY_MODEL)}, "server": {"url": "http://127.0.0.1:9/v1"}}


@pytest.mark.parametrize(
    ("settings", "kind", "engines"),
    [
        pytest.param({}, RecoveringEngine, 1, id="one engine"),
        pytest.param({"model": {"engines": 2}}, EngineFleet, 2, id="several"),
        pytest.param(SERVER, ServerBackend, 1, id="a server"),
    ],
)
def test_the_settings_choose_what_answers(tmp_path, monkeypatch, settings, kind, engines):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    asker = make_backend(read_model_card(None), Settings(home=tmp_path, **settings))

    assert (type(asker), asker.engines) == (kind, engines)


def test_a_run_may_not_ask_a_server_for_another_model_than_it_has():
    settings = Settings(**SERVER)

    assert read_card(None, settings).identity.name == TINY_MODEL.name
    with pytest.raises(ConfigurationError, match="Cannot use model Qwen/Qwen2-VL-2B: the server at"):
        read_card("Qwen/Qwen2-VL-2B", settings)


def test_an_engine_makes_room_for_the_frames_that_the_run_asks_for(tmp_path):
    card, settings = read_model_card(None), Settings(home=tmp_path)
    spec = make_spec(card, settings, num_frames=64)

    config = engine_config(card, settings, sampling=spec.sampling)

    assert (config.num_frames, config.max_pixels) == (64, spec.sampling.max_pixels)
    assert engine_config(card, settings).num_frames == settings.sampling.num_frames == 16
