from itertools import chain

import numpy as np
import pytest

from infra.errors import PlanForeignError, PlanLostError
from infra.settings import StoreSettings
from reelabel.seal import NO_KEY, Seal
from reelabel.sources.object_store import ObjectStore
from tasks.domain import MAX_JOBS, Job, Shard
from tasks.manifest.digests import jobs_to_rows
from tasks.manifest.plan_file import SHARDS_PER_FILE, PlanWriter, read_shard
from tests.reelabel.sources.s3_elsewhere import serving_elsewhere

SEAL = Seal(b"a key of the tests, with 32 bytes.")


def jobs_of(index, count=3):
    return [
        Job(job_id=f"{index}-{number}", video_uri=f"v{index}.mp4", prompt="How many? " * 40, choices=("one", "two"))
        for number in range(count)
    ]


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    """An object store, and a plan's folder on it."""
    if request.param == "folder":
        return ObjectStore(StoreSettings()), f"file://{tmp_path}/plans/p"
    settings = request.getfixturevalue("store_settings")
    return ObjectStore(settings), f"{settings.uri}/plans/p"


def test_every_shard_can_be_read_alone_in_any_order(store):
    count = SHARDS_PER_FILE + 2
    with PlanWriter(*store, seal=SEAL) as writer:
        for index in range(count):
            writer.add(jobs_to_rows(jobs_of(index)), [3])

    assert writer.jobs == [3] * count
    assert len(list(store[0].list(store[1]))) == 2
    for index in (count - 1, 0, SHARDS_PER_FILE - 1, SHARDS_PER_FILE, 7):
        assert read_shard(*store, index, seal=SEAL) == Shard(index=index, jobs=tuple(jobs_of(index)))


def test_a_shard_is_read_from_a_store_without_etags_and_ranges():
    with serving_elsewhere(etags=False, ranges=False) as server:
        store = ObjectStore(server.settings), f"{server.settings.uri}/plans/p"
        with PlanWriter(*store, seal=SEAL) as writer:
            for index in range(3):
                writer.add(jobs_to_rows(jobs_of(index)), [3])

        assert [read_shard(*store, index, seal=SEAL).jobs for index in range(3)] == [
            *map(tuple, map(jobs_of, range(3)))
        ]


def test_shards_of_different_sizes_written_together_are_read_separately(store):
    sizes = [1, 5, 2] * SHARDS_PER_FILE
    shards = [jobs_of(index, count) for index, count in enumerate(sizes)]
    with PlanWriter(*store, seal=SEAL) as writer:
        writer.add(jobs_to_rows([*chain(*shards[:300])]), sizes[:300])
        writer.add(jobs_to_rows([*chain(*shards[300:])]), sizes[300:])

    assert writer.jobs == sizes
    for index in (0, 1, SHARDS_PER_FILE, 299, 300, len(sizes) - 1):
        assert read_shard(*store, index, seal=SEAL) == Shard(index=index, jobs=tuple(shards[index]))


def test_every_field_of_a_job_survives_a_round_trip(store):
    values = {"start_s": 0.5, "end_s": 2.0, "messages": "[]", "system_prompt": "s", "template": "{prompt}{choices}"}
    job = Job(
        job_id="é",
        video_uri="v",
        prompt="?",
        choices=("a", "b"),
        examples="e",
        answer="a",
        task="t",
        subtask="u",
        **values,
    )
    with PlanWriter(*store, seal=SEAL) as writer:
        writer.add(jobs_to_rows([job]), [1])

    (read,) = read_shard(*store, 0, seal=SEAL).jobs
    assert read == job
    assert read.digest == job.digest


def test_a_removed_plan_is_reported_as_gone(store):
    with PlanWriter(*store, seal=SEAL) as writer:
        writer.add(jobs_to_rows(jobs_of(0)), [3])
    for info in store[0].list(store[1]):
        store[0].remove(info.uri)

    with pytest.raises(PlanLostError, match="is gone or was replaced; run again"):
        read_shard(*store, 0, seal=SEAL)


def write_until_interrupted(store):
    with PlanWriter(*store, seal=SEAL) as writer:
        writer.add(jobs_to_rows(jobs_of(0)), [3])
        raise KeyboardInterrupt


def test_an_interrupted_plan_leaves_no_partial_file(store):
    with pytest.raises(KeyboardInterrupt):
        write_until_interrupted(store)

    assert not list(store[0].list(store[1]))


def swap_shards(data):
    ends = np.frombuffer(data[-8 * SHARDS_PER_FILE :], "<u8").tolist()
    return data[ends[0] : ends[1]] + data[: ends[0]] + data[ends[1] :]


def flip_a_bit(data):
    return data[:500] + bytes([data[500] ^ 1]) + data[501:]


@pytest.mark.parametrize(
    "alter",
    [swap_shards, flip_a_bit, lambda data: data[:100], lambda data: data[: len(data) // 2], lambda _: b""],
    ids=["swapped", "altered", "truncated to nothing", "truncated", "empty"],
)
def test_no_job_of_an_altered_plan_is_run_and_the_message_says_how_to_continue(store, alter):
    objects, plan_uri = store
    with PlanWriter(*store, seal=SEAL) as writer:
        writer.add(jobs_to_rows([*jobs_of(0), *jobs_of(1)]), [3, 3])
    [file] = objects.list(plan_uri)
    objects.replace(file.uri, alter(objects.read(file.uri)))

    with pytest.raises(PlanLostError, match=r"was altered or damaged.*run again to plan"):
        read_shard(*store, 0, seal=SEAL)


def test_a_shard_of_more_jobs_than_any_has_is_not_run(store):
    with PlanWriter(*store, seal=NO_KEY) as writer:
        writer.add(jobs_to_rows(jobs_of(0, MAX_JOBS)), [MAX_JOBS])
        writer.add(jobs_to_rows(jobs_of(1, MAX_JOBS + 1)), [MAX_JOBS + 1])

    assert len(read_shard(*store, 0, seal=NO_KEY).jobs) == MAX_JOBS
    with pytest.raises(PlanLostError, match="was altered or damaged"):
        read_shard(*store, 1, seal=NO_KEY)


def test_one_plan_is_never_read_in_place_of_another(store):
    objects, plan_uri = store
    with PlanWriter(objects, plan_uri, seal=SEAL) as writer:
        writer.add(jobs_to_rows(jobs_of(0)), [3])
    [file] = objects.list(plan_uri)
    objects.replace(file.uri.replace(plan_uri, f"{plan_uri}2"), objects.read(file.uri))

    with pytest.raises(PlanLostError, match="was altered or damaged"):
        read_shard(objects, f"{plan_uri}2", 0, seal=SEAL)


@pytest.mark.parametrize("other", [NO_KEY, Seal(b"another key, as long as the first")])
def test_a_plan_sealed_with_another_key_is_distinguished_from_an_altered_one(store, other):
    with PlanWriter(*store, seal=other) as writer:
        writer.add(jobs_to_rows(jobs_of(0)), [3])

    with pytest.raises(PlanForeignError, match=r"another store\.mac_key, or without one; set the key"):
        read_shard(*store, 0, seal=SEAL)
