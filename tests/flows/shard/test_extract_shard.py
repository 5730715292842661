"""The times of an extracted shard, which explain what the engine waited for."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from flows.shard.extract import extract_shard
from tasks.domain import RunPhase, Shard
from tests.factories import make_job


def spent_ms(extractor, uri):
    shard = Shard(index=0, jobs=(make_job(uri),))
    return extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 1)).spent_ms


def test_a_new_video_is_decoded_and_a_known_one_only_looked_up(extractor, make_clip):
    clip = make_clip()

    first, second = spent_ms(extractor, clip), spent_ms(extractor, clip)

    assert min(first[RunPhase.DECODE], first[RunPhase.CACHE_WRITE]) > 0 == first[RunPhase.CACHE_READ]
    assert (
        second[RunPhase.CACHE_READ]
        > 0
        == second[RunPhase.DECODE]
        == second[RunPhase.CACHE_WRITE]
        == second[RunPhase.FETCH]
    )


def test_the_time_of_a_video_that_fails_counts_where_it_failed(extractor, tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_text("no video")

    decode, fetch = spent_ms(extractor, broken), spent_ms(extractor, tmp_path / "gone.mp4")

    assert decode[RunPhase.DECODE] > 0 == decode[RunPhase.FETCH]
    assert fetch[RunPhase.FETCH] > 0 == fetch[RunPhase.DECODE]
