"""A shard that was described before is read from one file, and a video that has changed since is read alone."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reelabel.segment import WHOLE
from reelabel.sources.object_store import ObjectStore
from tasks.description import describer as describer_module
from tasks.description.embeddings import CutCandidate, Cuts, Embeddings
from tasks.embedding import vector_file
from tasks.embedding.video import identity_of
from tests.description.colours import INFO
from tests.description.test_describer import SPEC, describer_of, encoder, film, job  # noqa: F401 - fixtures

VIDEOS = 9
ROWS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}


@pytest.fixture
def shard(describer_of, tmp_path):  # noqa: F811
    """Jobs on videos that were embedded by an earlier run, each of two seconds of a colour and two of another."""
    describer, jobs = describer_of(), []
    for number in range(VIDEOS):
        path = tmp_path / f"{number}.mp4"
        path.write_text(f"video {number}")
        jobs.append(replace(job(path), job_id=f"film-{number}"))
        colours = [list(ROWS)[number % 3], list(ROWS)[(number + 1) % 3]]
        vectors = np.array([ROWS[colour] for colour in colours for _ in range(4)], np.float32)
        pts_ms = np.arange(8, dtype=np.int64) * 500 + 250
        identity = identity_of(stat(path), WHOLE, spec=SPEC, encoder=INFO)
        describer.embedder.cache.write(identity, Embeddings(vectors=vectors, pts_ms=pts_ms, duration_s=4.0))
        cut = CutCandidate(pts_ms=2000, since_ms=1900, difference=30.0, strength=30.0)
        describer.cuts.write(Cuts(candidates=(cut,)), stat(path), WHOLE)
    return jobs


def stat(path):
    with ObjectStore().open(str(path)) as file:
        return file.info


@pytest.fixture
def reads(monkeypatch):
    """The URIs that are read."""
    found, read = [], ObjectStore.read
    monkeypatch.setattr(
        ObjectStore, "read", lambda self, uri, **options: found.append(uri) or read(self, uri, **options)
    )
    return found


def describe(describer, jobs):
    known, cache = versions(jobs), describer.embedder.cache
    shard = cache.read_shard(describer.embedder.shard_key(jobs))
    described = [
        describer.describe_stored(each, 0, known[each.video_uri], shard)
        or describer.describe(each, 0, known[each.video_uri], shard)
        for each in jobs
    ]
    cache.write_shard(shard)
    return described


def versions(jobs):
    return {each.video_uri: stat(each.video_uri) for each in jobs}


def values_of(described):
    return [(each.job.job_id, each.description, each.changes, each.scenes, each.duration_s) for each in described]


def test_a_described_shard_is_described_again_from_one_file(describer_of, shard, reads):  # noqa: F811
    alone = [describer_of().describe(each, 0, stat(each.video_uri)) for each in shard]
    first = describe(describer_of(), shard)
    reads.clear()

    again = describe(describer_of(tags=("blue", "red")), shard)

    assert len(reads) == 1
    assert values_of(first) == values_of(alone)
    assert [each.description.tags[0].text for each in again[:3]] == ["red", "blue", "blue"]
    assert all(each.was_cached and not each.cost.frames_embedded for each in again)
    assert values_of(describe(describer_of(), shard[::-1])) == values_of(alone)[::-1]


def test_a_video_that_has_changed_is_read_alone_and_the_next_run_has_it(describer_of, shard, encoder, reads, tmp_path):  # noqa: F811
    before = describe(describer_of(), shard)
    time.sleep(0.01)  # another time of modification
    film(tmp_path / "4.mp4", ("green", 4))

    describer = describer_of()
    stored = describer.embedder.cache.read_shard(describer.embedder.shard_key(shard))
    found = [describer.describe_stored(each, 0, stat(each.video_uri), stored) for each in shard]
    assert [each is not None for each in found] == [number != 4 for number in range(VIDEOS)]
    changed = describe(describer_of(), shard)

    assert [each.was_cached for each in changed] == [number != 4 for number in range(VIDEOS)]
    assert changed[4].description.tags[0].text == "green"
    assert encoder.images_embedded == changed[4].cost.frames_embedded == 8
    assert values_of(changed[:4] + changed[5:]) == values_of(before[:4] + before[5:])
    reads.clear()
    assert values_of(describe(describer_of(), shard)) == values_of(changed)
    assert (len(reads), encoder.images_embedded) == (1, 8)


def test_changes_that_an_earlier_version_has_found_are_looked_for_again(describer_of, shard, encoder, monkeypatch):  # noqa: F811
    before = describe(describer_of(), shard)
    for module in (describer_module, vector_file):
        monkeypatch.setattr(module, "FINDER_VERSION", module.FINDER_VERSION + 1)

    after = describe(describer_of(), shard)

    assert {each.changes.method for each in before} == {"index and ema"}
    assert {each.changes.method for each in after} == {"ema"}  # these files are no videos
    assert values_of(describe(describer_of(), shard)) == values_of(after)
    assert encoder.images_embedded == 0


def test_a_shard_of_few_videos_has_no_file_of_its_own(describer_of, shard):  # noqa: F811
    assert describer_of().embedder.shard_key(shard[:7]) is None


def test_another_method_reads_the_same_file_and_no_video(describer_of, shard, encoder, reads):  # noqa: F811
    describe(describer_of(), shard)
    reads.clear()

    changed = describe(describer_of(SPEC.model_copy(update={"scene_method": "ema", "scene_threshold": 0.3})), shard)

    assert len(reads) == 1
    assert [len(each.changes.changes) for each in changed] == [1] * VIDEOS
    assert encoder.images_embedded == 0


@pytest.mark.parametrize("spoiled", ["altered", "cut"])
def test_a_file_that_must_not_be_used_is_rebuilt(describer_of, shard, encoder, reads, spoiled):  # noqa: F811
    before = describe(describer_of(), shard)
    reads.clear()
    describe(describer_of(), shard)
    [uri] = reads
    path = Path(uri.removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes({"altered": data[:500] + bytes([data[500] ^ 1]) + data[501:], "cut": data[:-20]}[spoiled])
    reads.clear()

    again = describe(describer_of(), shard)

    assert values_of(again) == values_of(before)
    assert encoder.images_embedded == 0
    assert len(reads) > 1
    reads.clear()
    assert values_of(describe(describer_of(), shard)) == values_of(before)
    assert len(reads) == 1
