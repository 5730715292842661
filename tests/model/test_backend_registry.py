"""Backends are chosen by name: vLLM's engines, a server, or a third-party backend."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from infra.database.connect import connected
from infra.embedded import export
from infra.errors import EngineClosedError
from infra.settings import Settings
from reelabel.errors import ConfigurationError
from reelabel.frames.frame_file import read_frames
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineInfo, EngineTimes
from tasks.database.tables import RESULT, RUN
from tasks.domain import ONE_VIDEO, Answer, MediaCounts, ModelIdentity, RunSpec
from tasks.model.backend import Backend, InferenceBackend, backend_of, require_media, require_words
from tasks.model.engine import vllm_backend
from tasks.model.engine.recovery import RecoveringEngine
from tasks.model.engine.vllm_backend import VLLM, EnginePool, engine_config
from tasks.model.identity import TINY_MODEL, ModelInfo, read_model_info
from tasks.model.server.backend import ServerBackend
from tasks.model.server.openai_backend import OPENAI
from tests.command_line import reelabel
from tests.manifests import COLOURS, store_colours
from tests.model.adapters import make_adapter

SERVER = {"model": {"backend": "openai", "name": str(TINY_MODEL)}, "server": {"url": "http://127.0.0.1:9/v1"}}


class ColourMatcher(InferenceBackend):
    """Answers with the choice nearest to the frames' mean colour."""

    times = EngineTimes()

    def start(self):
        pass

    def close(self):
        pass

    def wait_ready(self):
        return EngineInfo(device="numpy", gpus=0, max_model_len=0, start_ms=0.0, versions={"colour-matcher": "1"})

    def answer(self, batch):
        means = {key: read_frames(data).unique.mean((0, 1, 2)) for key, data in batch.frame_files.items()}
        return [self._answer_question(question, means[question.video_id]) for question in batch.questions]

    def _answer_question(self, question, mean):
        distances = np.array([np.linalg.norm(mean - COLOURS[choice]) for choice in question.choices])
        scores = np.exp(-distances / 10)
        return Answer(
            choice_index=int(distances.argmin()),
            probabilities=tuple((scores / scores.sum()).tolist()),
            prompt_tokens=0,
            cached_tokens=0,
            preprocess_ms=0.0,
            inference_ms=0.0,
        )


class ColourBackend(Backend):
    """Loads no model."""

    name = "colour"

    def model_info(self, name, settings):  # noqa: ARG002
        if name is not None:
            raise ConfigurationError(f"The backend colour has no model {name}; leave out the name.")
        return ModelInfo(identity=ModelIdentity(name="mean-colour"), location="", size_multiple_px=1, max_pixels=None)

    def open(self, model_info, settings, *, media=ONE_VIDEO):  # noqa: ARG002 - none matters to it
        return ColourMatcher()


BACKEND = ColourBackend()
NAME = f"{__name__}:BACKEND"


@pytest.fixture(scope="module")
def colour_manifest(tmp_path_factory, own_services):
    return store_colours(tmp_path_factory.mktemp("colours"), own_services.store)


@pytest.mark.system
def test_a_third_party_backend_labels_a_manifest(own_services, colour_manifest):
    environment = os.environ | export(own_services) | {"REELABEL_MODEL_BACKEND": NAME, "COLUMNS": "160"}

    run = reelabel(environment, "classify", colour_manifest)
    doctor = reelabel(environment, "doctor")

    assert run.returncode == 0, run.stderr
    assert "Reconciled: 3 jobs = 3 labels + 0 failures." in run.stdout
    assert "colour: mean-colour" in doctor.stdout
    with connected(own_services.database) as engine, engine.connect() as connection:
        labels = {row.job_id: row.label for row in connection.execute(select(RESULT))}
        [versions] = connection.execute(select(RUN.c.versions)).scalars()
    assert labels == {name: name for name in COLOURS}
    assert versions["colour-matcher"] == "1"


def test_a_backend_without_a_model_of_that_name_is_explained(own_services, colour_manifest):
    environment = os.environ | export(own_services) | {"REELABEL_MODEL_BACKEND": NAME, "COLUMNS": "160"}

    run = reelabel(environment, "classify", colour_manifest, "--model", "other")

    assert run.returncode == 2
    assert "The backend colour has no model other; leave out the name." in run.stderr


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("mine", r"model\.backend mine does not exist; use vllm, openai or package\.module:OBJECT"),
        ("no_such_package:BACKEND", "Cannot import the backend no_such_package:BACKEND: No module named"),
        (f"{__name__}:GONE", "Cannot import the backend .*GONE"),
        ("a b:c", "Cannot import the backend a b:c"),
        (f"{__name__}:ColourBackend", "ColourBackend is of type ABCMeta; it must be an instance of Backend"),
    ],
)
def test_a_backend_that_cannot_be_used_is_named(name, fault):
    with pytest.raises(ConfigurationError, match=fault):
        backend_of(Settings(model={"backend": name}))


@pytest.mark.parametrize(
    ("backend", "changes", "message"),
    [
        (ColourBackend(), {}, "The backend colour shows one video per question, but jobs show 2 videos and 1 image"),
        (OPENAI, {"frames_as": "images"}, r"With frames sent as images, .*jobs show 2 videos and 1 image"),
        (
            VLLM,
            {"video_pruning_rate": 0.5},
            "video_pruning_rate works only for questions about one video, but jobs show 2 videos",
        ),
        (
            VLLM,
            {"sampling": {"sampler": "relevant"}, "relevance": {"model": {"name": "encoder"}}},
            "The sampler relevant chooses frames of one video by what is asked, but jobs show 2 videos and 1 image",
        ),
    ],
    ids=["another package", "images", "pruned", "relevant"],
)
def test_several_videos_are_refused_where_they_would_be_shown_in_part(backend, changes, message):
    spec = RunSpec(model=ModelIdentity(name="m"), **changes)

    require_media(backend, spec, MediaCounts(videos=1, images=0), Settings())
    with pytest.raises(ConfigurationError, match=message):
        require_media(backend, spec, MediaCounts(videos=2, images=1), Settings())


def test_jobs_without_choices_need_a_backend_that_writes():
    require_words(VLLM, words=1)
    require_words(ColourBackend(), words=0)

    with pytest.raises(
        ConfigurationError, match="The backend colour answers by choices alone, but some jobs have none"
    ):
        require_words(ColourBackend(), words=1)


def test_times_of_several_videos_do_not_travel_beside_pngs():
    spec, settings = RunSpec(model=ModelIdentity(name="m")), Settings(server={"frames": "png"})

    require_media(OPENAI, spec, MediaCounts(videos=1, images=2), settings)
    with pytest.raises(ConfigurationError, match=r"server\.frames png cannot show 2 videos .* set it to frame_file"):
        require_media(OPENAI, spec, MediaCounts(videos=2), settings)


def test_an_engine_makes_room_for_all_that_a_question_shows(tmp_path):
    model_info, settings = read_model_info(str(TINY_MODEL)), Settings(home=tmp_path)

    config = engine_config(model_info, settings, media=MediaCounts(videos=2, images=1))

    assert (config.shown_videos, config.shown_images) == (2, 1)


@pytest.mark.parametrize(
    ("cores", "engines", "renderers"), [(2, 1, 1), (8, 1, 2), (16, 2, 2), (64, 1, 8), (64, 4, 4), (4, 3, 1)]
)
def test_rendering_takes_a_quarter_of_the_cores_shared_by_all_engines(monkeypatch, cores, engines, renderers):
    monkeypatch.setattr(vllm_backend, "usable_cores", lambda: cores)

    config = engine_config(read_model_info(str(TINY_MODEL)), Settings(), engines=engines)

    assert config.render_processes == renderers


@pytest.mark.parametrize(("sessions", "each"), [(0, 0), (1, 1), (3, 2), (4, 2)])
def test_every_engine_takes_its_share_of_live_sessions(sessions, each):
    config = engine_config(read_model_info(str(TINY_MODEL)), Settings(), engines=2, live_sessions=sessions)

    assert config.live_sessions == each


def test_an_engine_is_loaded_as_the_settings_say(tmp_path):
    adapter = read_model_info(str(make_adapter(tmp_path / "mine", TINY_MODEL)))
    options = {
        "dtype": "float32",
        "tensor_parallel_size": 2,
        "chat_template_args": {"a": 1},
        "engine_args": {"max_num_seqs": 3},
        "video_pruning_rate": 0.5,
    }

    config, plain = (
        engine_config(model_info, Settings(model=options), devices=("0", "1"))
        for model_info in (adapter, replace(read_model_info(str(TINY_MODEL)), takes_videos=False))
    )

    assert {name: getattr(config, name) for name in options} == options
    assert (config.devices, config.adapter_fingerprint) == (("0", "1"), adapter.identity.fingerprint)
    assert (plain.adapter, plain.adapter_fingerprint) == (None, "")
    assert (config.frames_as_images, plain.frames_as_images) == (False, True)
    assert (VLLM.frames_as(adapter, Settings()), OPENAI.frames_as(adapter, Settings())) == ("video", "video")
    assert VLLM.frames_as(replace(adapter, takes_videos=False), Settings()) == "images"


@pytest.mark.parametrize(
    ("spoiled", "fault"),
    [
        pytest.param(lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer; copy", id="tokenizer"),
        pytest.param(
            lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[0].content[1].text }}<think>"),
            "thinks before it answers",
            id="template",
        ),
    ],
)
def test_a_model_that_answers_nothing_is_refused_before_it_is_loaded(tmp_path, spoiled, fault):
    folder = shutil.copytree(TINY_MODEL, tmp_path / "model")
    spoiled(folder)
    model_info, settings = read_model_info(str(folder)), Settings(home=tmp_path)

    for use in (VLLM.check, VLLM.open):
        with pytest.raises(ModelError, match=fault):
            use(model_info, settings)


@pytest.mark.parametrize(
    ("settings", "kind", "engines"),
    [
        pytest.param({}, RecoveringEngine, 1, id="one engine"),
        pytest.param({"model": {"engines": 2}}, EnginePool, 2, id="several"),
        pytest.param(SERVER, ServerBackend, 1, id="a server"),
    ],
)
def test_the_settings_choose_the_backend(tmp_path, monkeypatch, settings, kind, engines):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    chosen = Settings(home=tmp_path, **settings)

    opened = backend_of(chosen).open(read_model_info(str(TINY_MODEL)), chosen)

    assert (type(opened), opened.engines) == (kind, engines)


def test_a_run_cannot_ask_a_server_for_a_model_it_lacks():
    settings = Settings(**SERVER)
    server = backend_of(settings)

    assert server.model_info(None, settings).identity.name == TINY_MODEL.name
    with pytest.raises(ConfigurationError, match="Cannot use model Qwen/Qwen2-VL-2B: the server at"):
        server.model_info("Qwen/Qwen2-VL-2B", settings)


def test_a_server_is_not_trusted_to_add_an_adapter(tmp_path):
    adapter = make_adapter(tmp_path / "mine", TINY_MODEL)
    settings = Settings(**SERVER | {"model": {"backend": "openai", "name": str(adapter)}})

    with pytest.raises(ConfigurationError, match=r"LoRA adapter mine cannot be checked; leave out model\.name"):
        backend_of(settings).model_info(None, settings)


def test_a_backend_takes_live_sessions_only_if_it_says_how():
    with pytest.raises(ConfigurationError, match=r"colour takes no live sessions; set model\.backend to vllm or"):
        ColourBackend().open_live(read_model_info(str(TINY_MODEL)), Settings(), sessions=1)


def test_live_sessions_share_the_engine_of_questions(tmp_path):
    settings = Settings(home=tmp_path)

    backend, live = VLLM.open_live(read_model_info(str(TINY_MODEL)), settings, sessions=3)

    live.open("one")
    backend.close()
    with pytest.raises(EngineClosedError):
        live.wait_ready()


def test_pruned_videos_and_live_sessions_exclude_each_other(tmp_path):
    settings = Settings(home=tmp_path, model={"video_pruning_rate": 0.5})

    with pytest.raises(ConfigurationError, match="which video_pruning_rate prevents; leave it out"):
        VLLM.open_live(read_model_info(str(TINY_MODEL)), settings, sessions=1)
