"""The flow `survey`, in the process of the test."""

import pytest
from prefect.flow_engine import run_flow

from flows.survey import survey
from infra.embedded import export
from reelabel.sources.object_store import ObjectStore
from tests.clips import make_clip
from tests.survey.conftest import write_manifest

pytestmark = pytest.mark.system

__all__ = ["make_clip", "write_manifest"]


@pytest.fixture
def run(own_services, prefect_api, monkeypatch):  # noqa: ARG001 - where it runs
    for name, value in export(own_services).items():
        monkeypatch.setenv(name, value)
    return lambda **parameters: run_flow(survey, parameters=parameters, return_type="state")


def test_a_flow_run_ends_with_the_sentences_and_leaves_a_page(run, own_services, make_clip, write_manifest):
    manifest = write_manifest({"video_uri": str(make_clip(gop=300))}, {"video_uri": "/gone.mp4"})

    state = run(manifest=manifest)

    assert state.is_completed(), state.message
    assert "1 of 2 clips has one keyframe" in state.message
    objects = ObjectStore(own_services.store)
    [page] = objects.list(f"{own_services.store.uri}/reports/")
    assert objects.read(page.uri)[:15] == b"<!doctype html>"


def test_a_wrong_sample_is_one_sentence(run):
    assert run(manifest="jobs.parquet", sample=1).message.startswith("Sample: ")
