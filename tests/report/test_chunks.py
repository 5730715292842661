"""What a page says about the chunks of a job that was cut."""

from pathlib import Path

import polars as pl
import pytest

from infra.settings import StoreSettings
from reelabel.extract import extract_local
from reelabel.frames.cache import FrameCache
from reelabel.frames.cache_key import FrameIdentity
from reelabel.options import Limits
from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from tasks.domain.chunks import ChunkOutcome, cut_job, merge_chunks
from tasks.report.run import render_run
from tests.frame_files import frame_file_of
from tests.report.test_gather import SPEC, manifest, page_of, started
from tests.results.rows import failure, job, result

__all__ = ["manifest", "started"]
CUT = SPEC.model_copy(update={"chunk_s": 2.0, "chunk_rule": "any:no"})


@pytest.fixture
def answered(started, manifest, tmp_path):
    """Answer the job a in two chunks, of which the first one failed; the frames of the second are in the cache."""
    uri = pl.read_parquet(manifest)["video_uri"][0]
    cut = cut_job(job("a", video_uri=uri, answer="no", chunk_s=2), 4)
    outcomes = [failure(cut.chunks[0], message="It hangs."), result(cut.chunks[1])]
    chunks = [ChunkOutcome(job=cut.job, number=number, outcome=each) for number, each in enumerate(outcomes)]
    source = {"source_uri": uri, "fingerprint": "e1", "sampling": SPEC.sampling}
    segment = Segment(2.0)
    frames = extract_local(Path(uri), sampling=SPEC.sampling, limits=Limits(), segment=segment)
    cache = FrameCache(ObjectStore(StoreSettings()), f"file://{tmp_path}/cache")
    cache.write(FrameIdentity(**source, segment=segment), frame_file_of(frames, **source))
    started(CUT, [merge_chunks(cut, chunks, "any:no")], chunks=chunks)


@pytest.mark.usefixtures("answered")
def test_a_job_shows_its_chunks_and_the_frames_of_the_one_that_decided(engine, tmp_path):
    report = page_of(engine, tmp_path)

    [found] = report["jobs"]
    assert [(each["chunk"], each["start_s"], each["end_s"], each["label"]) for each in found.chunks] == [
        (0, 0, 1.9998, None),
        (1, 2, None, "no"),
    ]
    [strip] = found.strips
    assert [frame.time_s for frame in strip.frames] == [2, 3]
    assert (found.row["chunks"], found.row["chunks_answered"]) == (2, 1)
    assert found.chunks[0]["strip"] is None
    page = render_run(report)
    assert "All 1 job are in this report, 1 with their frames." in page
    assert "no_frames 1, no 1." in page
    assert "reelabel report" in page
    assert "--job &#39;a#0&#39;" in page


@pytest.mark.usefixtures("answered")
def test_the_id_of_a_chunk_asks_for_its_job(engine, tmp_path):
    report = page_of(engine, tmp_path, job_ids=["a#0", "a#1"])

    assert [each.job_id for each in report["jobs"] if "requested" in each.selected_because] == ["a"]
