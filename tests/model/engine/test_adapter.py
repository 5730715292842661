"""LoRA adapters in a real vLLM: answers are those of the merged weights, in live sessions, too."""

import shutil
from contextlib import contextmanager

import pytest

from infra.settings import ModelSettings, Settings
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, LiveQuery
from tasks.live.model import Prefix
from tasks.model.engine.live.model import EngineLiveModel
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_MODEL, read_model_info
from tests.model.adapters import make_adapter, merge
from tests.model.engine.live.streams import clip, pairs_of
from tests.model.factories import frame_file, in_words, live_answer, question
from tests.model.families.saved import saved

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("adapter")]

QUESTIONS = (question(), question("What shape is it?", ("square", "circle", "triangle", "cross")), in_words())


@contextmanager
def loaded(model, folder, *, live_sessions=0, **arguments):
    model_info = read_model_info(str(model))
    settings = Settings(model=ModelSettings(name=str(model), dtype="float32", engine_args=arguments))
    config = engine_config(model_info, settings, live_sessions=live_sessions)
    with EngineProcess(config, log_path=folder / f"{model.name}.log", start_timeout_s=240) as engine:
        yield engine, model_info


def answers_of(model, folder, **arguments):
    """Return the probabilities of choices and the words that a model answers to questions, and in a live session."""
    items, query = pairs_of(clip(3)), LiveQuery(text=QUESTIONS[0].text, choices=QUESTIONS[0].choices)
    with loaded(model, folder, live_sessions=1, **arguments) as (engine, model_info):
        *chosen, written = engine.answer(Batch(frame_files={"v": frame_file(4)}, questions=QUESTIONS))
        live = EngineLiveModel([engine], model_info, max_frame_px=56 * 56)
        live.open("s")
        while live.prefill([Prefix(session="s", items=items)]):
            pass
        _, done = live_answer(live.ask(Prefix(session="s", items=items), query), query.choices)
    assert done.cached_tokens >= 32
    return [share for each in (*chosen, done) for share in each.probabilities], written.words.text


def test_an_adapter_answers_as_its_merged_weights_in_live_sessions_too(tmp_path):
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL)

    shares, words = answers_of(adapter, tmp_path)
    expected, expected_words = answers_of(merge(adapter, tmp_path / "merged"), tmp_path)
    plain, plain_words = answers_of(TINY_MODEL, tmp_path)

    assert shares == pytest.approx(expected, abs=1e-3)
    assert shares != pytest.approx(plain, abs=0.05)
    assert words == expected_words != plain_words


def test_a_pipeline_whose_workers_have_some_layers_each_loads_an_adapter(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # there may be fewer NUMA nodes than workers
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL)

    # vLLM's pipelines on CPUs load, but answer nothing.
    with loaded(adapter, tmp_path, pipeline_parallel_size=2) as (engine, _):
        engine.wait_ready()


def test_an_adapter_that_was_overwritten_since_it_was_chosen_is_refused(tmp_path):
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL)
    with loaded(adapter, tmp_path) as (engine, _):
        shutil.rmtree(adapter)
        make_adapter(adapter, TINY_MODEL, lora_alpha=8)
        with pytest.raises(ModelError, match=r"Cannot load model .*/adapter: Files of the adapter .* have changed"):
            engine.wait_ready()


def test_an_adapter_of_the_vision_encoder_is_applied_or_refused(tmp_path):
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL, of=("q_proj", "attn.qkv"))

    with (
        loaded(adapter, tmp_path) as (engine, _),
        pytest.raises(ModelError, match=r"such as visual.*enable_tower_connector_lora = true"),
    ):
        engine.wait_ready()
    shares, _ = answers_of(adapter, tmp_path, enable_tower_connector_lora=True)
    expected, _ = answers_of(merge(adapter, tmp_path / "merged"), tmp_path)

    assert shares == pytest.approx(expected, abs=1e-3)


def test_an_adapter_of_a_model_that_takes_none_is_refused_in_one_sentence(tmp_path):
    model = saved("llava_onevision", tmp_path)
    adapter = make_adapter(tmp_path / "adapter", model)

    with (
        loaded(adapter, tmp_path) as (engine, _),
        pytest.raises(ModelError, match=r"applies no LoRA adapter to this arch"),
    ):
        engine.wait_ready()


def test_an_adapter_of_another_model_is_refused_in_one_sentence(tmp_path):
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL, base_model_name_or_path=str(saved("idefics3", tmp_path)))

    with (
        loaded(adapter, tmp_path) as (engine, _),
        pytest.raises(ModelError, match=r"leave out 12 parts.* correct base_model_name_or_path"),
    ):
        engine.wait_ready()
