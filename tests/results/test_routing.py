"""A run says what it routed, why, and what that cost."""

from dataclasses import replace

import pytest

from reelabel.sampling.options import Sampling
from tasks.domain import FirstAnswer, RunSpec
from tasks.report.run import render_run
from tasks.results.evaluation.routing import read_routing
from tasks.results.runs import open_run
from tasks.results.write import ShardWriter
from tests.report.rows import report
from tests.results.rows import FACTS, SPEC, job, result

ROUTED = RunSpec(model=SPEC.model, sampling=Sampling(sampler="auto", escalate_below=0.5))


def label(name, video, *, frames, reason="", answer="no", **changed):
    """Label a job with its second choice, no."""
    answered = job(name, video_uri=video, answer=answer)
    seen = {"fingerprint": video, "frames_decoded": frames, "decode_ms": float(frames), "longest_gap_s": 1.0}
    labelled = replace(result(answered, **seen | changed), routed_by=reason)
    return replace(labelled, first=FirstAnswer(label="yes", margin=0.1, below=0.5)) if reason == "margin" else labelled


@pytest.fixture
def routed(db, run):
    """Eight labels on five videos: two escalated, of which one is wrong, and one each by task and coverage."""
    key = replace(run, run_id=run.run_id.__class__(int=3), spec_id=ROUTED.spec_id)
    open_run(db, run_id=key.run_id, spec=ROUTED, facts=FACTS)
    rows = [
        label("a", "v1", frames=4),
        label("b", "v1", frames=4),
        label("c", "v2", frames=4, answer=None),
        label("d", "v2", frames=64, reason="margin"),
        label("e", "v2", frames=64, reason="margin", answer="yes"),
        label("f", "v3", frames=50, reason="task"),
        label("g", "v4", frames=46, reason="coverage"),
        label("h", "v5", frames=4),
    ]
    ShardWriter(db, key).write(results=rows, failures=[])
    return read_routing(db, key, run_id=key.run_id)


def test_labels_and_frames_are_counted_by_reason(routed):
    found = {
        route.reason: (route.jobs, route.known, route.correct, route.videos, route.frames) for route in routed.routes
    }

    assert found == {
        "task": (1, 1, 1, 1, 50),
        "coverage": (1, 1, 1, 1, 46),
        "": (4, 3, 3, 3, 12),
        "margin": (2, 2, 1, 1, 64),
    }
    assert (routed.videos, routed.frames) == (5, 168)  # v2's keyframes are counted once, though a label each has them
    assert routed.dense_frames == 260  # 50, 46 and 60 frames of three videos, and their mean of two
    assert routed.cost == "168, 65% of about 260 by the dense sampler alone"
    assert dict(routed.lines())["route: escalated, since the margin was low"] == (
        "2 jobs, accuracy 0.500 of 2, 64 frames of 1 video"
    )


def write_routed(db, run, rows):
    key = replace(run, run_id=run.run_id.__class__(int=3), spec_id=ROUTED.spec_id)
    open_run(db, run_id=key.run_id, spec=ROUTED, facts=FACTS)
    ShardWriter(db, key).write(results=rows, failures=[])
    return read_routing(db, key, run_id=key.run_id)


def test_a_frame_file_that_routes_and_shards_share_is_counted_once(db, run):
    rows = [
        label("a", "v1", frames=40, reason="coverage", sampler="uniform"),
        label("b", "v1", frames=40, reason="task", sampler="uniform", decode_ms=0.0),
        label("c", "v1", frames=40, reason="task", sampler="uniform", decode_ms=0.0),
        label("d", "v2", frames=4),
        label("e", "v2", frames=60, reason="task", sampler="uniform"),
        label("f", "v2", frames=64, reason="margin", sampler="uniform", decode_ms=4.0),
        label("g", "v3", frames=32, reason="margin", sampler="uniform", keyframes_in_file=2),
    ]

    routed = write_routed(db, run, rows)

    assert (routed.videos, routed.frames, routed.dense_frames) == (3, 40 + 64 + 32, 40 + 60 + 30)


def test_segments_of_one_video_are_counted_apart(db, run):
    rows = [label(f"s{number}", "v1", frames=10, reason="task", decode_ms=1.0 + number) for number in range(3)]

    routed = write_routed(db, run, rows)

    assert (routed.videos, routed.frames, routed.dense_frames) == (3, 30, 30)


def test_a_run_that_has_only_one_route_says_nothing(db, run):
    ShardWriter(db, run).write(results=[label("a", "v1", frames=4)], failures=[])

    assert read_routing(db, run, run_id=run.run_id) is None


def test_a_run_that_routed_nothing_knows_no_dense_cost(db, run):
    key = replace(run, run_id=run.run_id.__class__(int=3), spec_id=ROUTED.spec_id)
    open_run(db, run_id=key.run_id, spec=ROUTED, facts=FACTS)
    ShardWriter(db, key).write(results=[label("a", "v1", frames=4)], failures=[])

    found = read_routing(db, key, run_id=key.run_id)

    assert (found.dense_frames, found.cost) == (None, "4")


def test_the_page_shows_routes_and_their_cost(routed):
    page = render_run(report(routing=routed))

    assert ">Routing<" in page
    assert "dense sampler by task" in page
    assert "Frames decoded: 168, 65% of about 260 by the dense sampler alone." in page
    assert ">Routing<" not in render_run(report())
