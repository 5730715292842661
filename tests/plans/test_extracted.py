import json

import pytest

from infra.errors import PlanLostError
from infra.settings import StoreSettings
from reelabel.errors import DecoderCrashedError, VideoMissingError
from reelabel.frames.extractor import ExtractedVideo
from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from tasks.domain import RunPhase, Shard, View
from tasks.plans.extracted import ExtractedShard, read_extracted, write_extracted
from tests.results.rows import PROVENANCE, job


def test_the_stored_outcome_of_an_extraction_is_read_back_completely(tmp_path):
    shard = Shard(index=3, jobs=tuple(job(name) for name in "abc"))
    facts = {"key": "frames/k", "was_cached": False, "frame_bytes": 99, "lookup_ms": 0.5}
    video = ExtractedVideo(uri="a.mp4", provenance=PROVENANCE, **facts)
    prepared = {View("a.mp4"): video, View("a.mp4", shown="dense", segment=Segment(None, 2.5)): video}
    crashed, missing = DecoderCrashedError("It died."), VideoMissingError("It is gone.")
    crashed.fingerprint = "e2"
    faults = {View("b.mp4"): crashed, View("c.mp4"): missing}
    extracted = ExtractedShard(
        shard=shard,
        outcomes=prepared | faults,
        spent_ms={RunPhase.FETCH: 1.5, RunPhase.DECODE: 2.0},
        between_s=(1000.5, 1004.0),
    )
    objects, plan_uri = ObjectStore(StoreSettings()), f"file://{tmp_path}/p"

    write_extracted(objects, plan_uri, extracted)
    read = read_extracted(objects, plan_uri, shard)

    assert (read.shard, read.spent_ms) == (shard, extracted.spent_ms)
    assert {view: read.outcomes[view] for view in prepared} == prepared
    assert read.between_s == (1000.5, 1004.0)
    for view, fault in faults.items():
        found = read.outcomes[view]
        assert type(found) is type(fault)
        assert (found.message, found.fingerprint, found.stage) == (fault.message, fault.fingerprint, fault.stage)


def test_a_missing_extraction_is_reported(tmp_path):
    with pytest.raises(PlanLostError, match="is missing; its shard will be extracted again"):
        read_extracted(ObjectStore(StoreSettings()), f"file://{tmp_path}/p", Shard(index=0, jobs=(job("a"),)))


def test_a_shard_extracted_by_another_version_must_be_extracted_again(tmp_path):
    shard = Shard(index=0, jobs=(job("a"),))
    video = {"key": "k", "was_cached": True, "frame_bytes": 1, "lookup_ms": 0.5, "provenance": {"no_such_column": 1}}
    packed = {"video": 0, "view": ["first", [None, None]], **video}
    tmp_path.joinpath("extracted").mkdir()
    tmp_path.joinpath("extracted/000000.json").write_text(json.dumps({"views": [packed]}))

    with pytest.raises(PlanLostError, match="was written by another version"):
        read_extracted(ObjectStore(StoreSettings()), f"file://{tmp_path}", shard)
