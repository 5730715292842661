import json
from dataclasses import replace

import pytest

from infra.errors import PlanForeignError, PlanLostError
from infra.settings import StoreSettings
from reelabel.errors import DecoderCrashedError, VideoMissingError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.options import Sampling, with_sampler
from reelabel.seal import NO_KEY, Seal
from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from tasks.domain import RunPhase, Shard, View
from tasks.domain.chunks import CutVideo
from tasks.domain.passes import with_times
from tasks.frame_cache.extractor import ExtractedVideo
from tasks.plans.extracted import ExtractedShard, read_extracted, write_extracted
from tests.results.rows import PROVENANCE, job

SEAL = Seal(b"a key of the tests, with 32 bytes.")
SAMPLING = Sampling()
STORE = ObjectStore(StoreSettings())


def extracted_video(view):
    seen, sampling = PROVENANCE, with_sampler(SAMPLING, PROVENANCE.sampler)
    if view.texts:
        seen = replace(PROVENANCE, sampler="relevant", chosen_ms="40,80")
        sampling = with_times(with_sampler(SAMPLING, "relevant"), (40, 80))
    identity = FrameIdentity(
        source_uri=view.video_uri, fingerprint=seen.fingerprint, sampling=sampling, segment=view.segment
    )
    facts = {"was_cached": False, "frame_bytes": 99, "lookup_ms": 0.5, "rewritten": "frame file rewritten: why"}
    return ExtractedVideo(identity=identity, provenance=seen, **facts)


def extraction_of(shard):
    faults = {View(uri): VideoMissingError("It is gone.") for uri in shard.video_uris}
    return ExtractedShard(shard=shard, outcomes=faults, spent_ms={}, between_s=(0.0, 1.0))


def read(plan_uri, shard):
    return read_extracted(STORE, plan_uri, shard, sampling=SAMPLING, seal=SEAL)


def test_the_stored_outcome_of_an_extraction_is_read_back_completely(tmp_path):
    shard = Shard(index=3, jobs=tuple(job(name) for name in "abc"))
    views = (
        View("a.mp4"),
        View("a.mp4", shown="dense", segment=Segment(None, 2.5)),
        View("a.mp4", texts=("yes ?", "no ?")),
    )
    prepared = {view: extracted_video(view) for view in views}
    crashed, missing = DecoderCrashedError("It died."), VideoMissingError("It is gone.")
    crashed.fingerprint = "e2"
    faults = {View("b.mp4"): crashed, View("c.mp4"): missing}
    extracted = ExtractedShard(
        shard=shard,
        outcomes=prepared | faults,
        spent_ms={RunPhase.FETCH: 1.5, RunPhase.DECODE: 2.0},
        between_s=(1000.5, 1004.0),
        cut_videos={"b.mp4": CutVideo(9.5, "e1")},
    )
    plan_uri = f"file://{tmp_path}/p"

    write_extracted(STORE, plan_uri, extracted, seal=SEAL)
    found = read(plan_uri, shard)

    assert (found.shard, found.spent_ms) == (shard, extracted.spent_ms)
    assert {view: found.outcomes[view] for view in prepared} == prepared
    assert (found.between_s, found.cut_videos) == ((1000.5, 1004.0), {"b.mp4": (9.5, "e1")})
    for view, fault in faults.items():
        error = found.outcomes[view]
        assert type(error) is type(fault)
        assert (error.message, error.fingerprint, error.stage) == (fault.message, fault.fingerprint, fault.stage)


def test_a_missing_extraction_is_reported(tmp_path):
    with pytest.raises(PlanLostError, match="is missing; its shard will be extracted again"):
        read(f"file://{tmp_path}/p", Shard(index=0, jobs=(job("a"),)))


def test_a_shard_extracted_by_another_version_must_be_extracted_again(tmp_path):
    shard = Shard(index=0, jobs=(job("a"),))
    video = {"was_cached": True, "frame_bytes": 1, "lookup_ms": 0.5, "provenance": {"no_such_column": 1}}
    packed = {"video": 0, "view": ["first", [None, None]], **video}
    uri = f"file://{tmp_path}/extracted/000000.json"
    STORE.replace(uri, SEAL.wrap(uri, json.dumps({"views": [packed]}).encode()))

    with pytest.raises(PlanLostError, match="was written by another version"):
        read(f"file://{tmp_path}", shard)


def test_a_shard_extracted_by_a_version_with_other_facts_must_be_extracted_again(tmp_path):
    shard, plan_uri = Shard(index=0, jobs=(job("a"),)), f"file://{tmp_path}/p"
    write_extracted(STORE, plan_uri, extraction_of(shard), seal=SEAL)
    [uri] = (info.uri for info in STORE.list(plan_uri))
    found = json.loads(bytes(SEAL.unwrap(uri, STORE.read(uri))))
    earlier = [{name: found[name] for name in found if name != missing} for missing in found]

    for changed in (*earlier, found | {"spent_ms": {"no such phase": 1.0}}):
        STORE.replace(uri, SEAL.wrap(uri, json.dumps(changed).encode()))
        with pytest.raises(PlanLostError, match="was written by another version"):
            read(plan_uri, shard)


def test_an_altered_extraction_is_not_used_and_its_shard_is_extracted_again(tmp_path):
    shards = [Shard(index=index, jobs=(job("a"),)) for index in (0, 1)]
    plan_uri = f"file://{tmp_path}/p"
    for shard in shards:
        write_extracted(STORE, plan_uri, extraction_of(shard), seal=SEAL)
    first, second = (info.uri for info in STORE.list(plan_uri))
    data = STORE.read(first)

    STORE.replace(first, STORE.read(second))
    with pytest.raises(PlanLostError, match=r"Signature mismatch.*Its shard will be extracted again"):
        read(plan_uri, shards[0])
    STORE.replace(first, data.replace(b"video_missing", b"video_refused"))
    with pytest.raises(PlanLostError, match=r"Signature mismatch.*Its shard will be extracted again"):
        read(plan_uri, shards[0])


def test_an_extraction_sealed_with_another_key_stops_the_flow(tmp_path):
    shard = Shard(index=0, jobs=(job("a"),))
    write_extracted(STORE, f"file://{tmp_path}", extraction_of(shard), seal=NO_KEY)

    with pytest.raises(PlanForeignError, match="set the same key on all machines"):
        read(f"file://{tmp_path}", shard)
