"""The spec of a run that describes videos: options, then settings, then defaults; banks and models that are refused."""

import pytest

from flows.run.descriptions import prepare_descriptions, resolve_request
from flows.run.request import BackfillRequest, DescribeRequest, QuestionOptions
from infra.settings import DescribeOptions, SamplingOptions, Settings, WebSettings
from reelabel.errors import ConfigurationError
from reelabel_engine.errors import ModelError
from tasks.description.banks import ACTIVITIES, PLACES, read_bank
from tasks.domain import WallClockProfile
from tasks.embedding.bank_file import BankFiles
from tests.http_server import Handler, serve


@pytest.fixture
def settings(tmp_path):
    return Settings(store={"uri": f"file://{tmp_path}/store"})


def resolve(settings, **options):
    return resolve_request(DescribeRequest(manifest="m", options=DescribeOptions(**options)), settings)[1]


def described_by(settings, **values):
    return settings.model_copy(update={"describe": settings.describe.model_copy(update=values)})


def test_without_options_a_video_is_described_by_the_banks_that_ship(settings):
    spec = resolve(settings)

    assert (spec.seconds_per_chunk, spec.frames_per_chunk, spec.sampler, spec.top_k) == (10, 16, "dense", 5)
    assert (spec.method, spec.scene_method, spec.scene_threshold) == ("default", "auto", 10.0)
    assert spec.model.name == "reelabel-tiny-siglip"
    kept = BankFiles.of(settings.store)
    assert kept.read_texts(spec.tags).texts == read_bank(PLACES).texts
    assert kept.read_texts(spec.captions).texts == read_bank(ACTIVITIES).texts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"chunk_s": 4}, {"seconds_per_chunk": 4}),
        ({"frames_per_chunk": 3}, {"frames_per_chunk": 3}),
        ({"sampler": "keyframes"}, {"sampler": "keyframes"}),
        ({"top_k": 1}, {"top_k": 1}),
        ({"method": "published"}, {"method": "published", "scene_method": "published", "scene_threshold": 0.15}),
        ({"method": "published", "scene_method": "ema"}, {"scene_method": "ema", "scene_threshold": 0.15}),
        ({"scene_threshold": 0.0}, {"scene_threshold": 0.0}),
    ],
)
def test_options_change_the_specs_id(settings, options, expected):
    spec = resolve(settings, **options)

    assert {name: getattr(spec, name) for name in expected} == expected
    assert spec.spec_id != resolve(settings).spec_id


def test_options_come_before_settings(settings):
    of_settings = described_by(settings, chunk_s=4, sampler="keyframes")

    assert resolve(of_settings) == resolve(settings, chunk_s=4, sampler="keyframes")
    assert resolve(of_settings, chunk_s=10, sampler="dense") == resolve(settings)


def test_a_bank_is_known_by_its_texts_wherever_it_lies(settings, tmp_path):
    (tmp_path / "tags.txt").write_text("a dog\na cat\n")
    (tmp_path / "tags.csv").write_text("text,weight\na dog,1\na cat,2\n")

    uris = (tmp_path / "tags.txt", tmp_path / "tags.csv", f"file://{tmp_path}/tags.csv")
    assert len({resolve(settings, tags=str(uri)).tags for uri in uris}) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tags": "gone.txt"}, "Cannot read the bank gone.txt"),
        ({"tags": "file:///gone/tags.txt"}, "Cannot read the bank file:///gone/tags.txt"),
        ({"scene_method": "emma"}, "Unknown scene method emma; choose one of auto, ema, published."),
    ],
)
def test_what_cannot_be_used_is_reported(settings, options, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        resolve(settings, **options)


@pytest.mark.parametrize("signature", ["a", "a" * 400, "a/b.txt"])
def test_a_bank_on_the_web_is_read_by_its_name_whatever_its_signature_which_no_message_shows(settings, signature):
    class Bank(Handler):
        def do_GET(self):
            self.respond(404 if self.path.startswith("/gone") else 200, b'text,kind\n"red, or blue",x\n')

        def do_HEAD(self):
            self.do_GET()

    settings = settings.model_copy(update={"web": WebSettings(allow_networks=["127.0.0.0/8"])})
    with serve(Bank) as server:
        spec = resolve(settings, tags=f"{server.url}/tags.csv?signature={signature}")
        with pytest.raises(ConfigurationError, match=r"Cannot read the bank http\S+/gone.csv\?\.\.\.: ") as refused:
            resolve(settings, tags=f"{server.url}/gone.csv?signature={signature}")

    assert BankFiles.of(settings.store).read_texts(spec.tags).texts == ("red, or blue",)
    assert "signature" not in refused.value.message


def test_a_faulty_bank_on_the_store_is_named_by_its_uri(settings, tmp_path):
    (tmp_path / "tags.txt").write_text("a dog\n\na cat\n")

    with pytest.raises(
        ConfigurationError, match=rf"The bank file://{tmp_path}/tags.txt cannot be used: line 2 is empty"
    ):
        resolve(settings, tags=f"file://{tmp_path}/tags.txt")


def test_a_model_that_does_not_exist_is_refused(settings):
    with pytest.raises(ModelError, match="There is no model folder"):
        resolve(settings, model="./gone")


def test_a_backfill_has_the_spec_of_the_earlier_run_whatever_the_settings_are(settings):
    base = resolve(settings, top_k=2)

    again = resolve_request(BackfillRequest(manifest="m"), described_by(settings, chunk_s=7), base=base)[1]

    assert again == base


def test_a_dry_run_opens_no_encoder(settings, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    here = described_by(settings, engines=2)  # more than this machine has GPUs
    base = resolve(settings)
    request, profile = BackfillRequest(manifest="m"), WallClockProfile()

    with prepare_descriptions(request, here, None, None, profile, base=base, dry_run=True) as prepared:
        assert prepared.spec == base


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (QuestionOptions(sampling=SamplingOptions(num_frames=4)), "keeps the options of the earlier run"),
        (QuestionOptions(), "The earlier run used another, but describe.model is now reelabel-tiny-siglip"),
    ],
)
def test_a_backfill_with_other_options_or_another_model_is_refused(settings, overrides, sentence):
    base = resolve(settings)
    if overrides == QuestionOptions():
        base = base.model_copy(update={"model": base.model.model_copy(update={"name": "another"})})

    with pytest.raises(ConfigurationError, match=sentence):
        resolve_request(BackfillRequest(manifest="m", overrides=overrides), settings, base=base)
