"""The bench of search knows what there is to find, and says when a target is missed."""

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.search import FRAMES_PER_FILE, KINDS, MadeVectors, exact_neighbours, make_case, targets
from tasks.search.hits import Hits


def row(*, vectors=10**6, ms=50.0, recall=1.0, anonymous_bytes=2**20):
    return {
        "vectors": vectors,
        "ms": {kind: [ms] for kind in KINDS},
        "recall": dict.fromkeys(KINDS, recall),
        "anonymous_bytes": anonymous_bytes,
    }


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        (row(), 0),
        (row(ms=301), 1),
        (row(ms=301, vectors=10**7), 0),
        (row(ms=1501, vectors=10**7), 1),
        (row(recall=0.999), 1),
        (row(anonymous_bytes=2**31), 1),
    ],
)
def test_a_missed_target_is_reported(measured, missed):
    assert sum(not target.is_met for target in targets([measured])) == missed


def test_the_nearest_of_all_files_are_those_of_one_large_one():
    generator = MadeVectors(dimensions=136)
    queries, files = generator.queries(3, kind="texts"), [generator.file(number) for number in range(3)]

    numbers, cosines = exact_neighbours(iter(files), queries, top=5)

    scores = queries @ np.concatenate(files).T
    assert numbers.tolist() == np.argsort(-scores, axis=1)[:, :5].tolist()
    assert cosines == pytest.approx(np.sort(scores, axis=1)[:, ::-1][:, :5])


def test_a_frame_as_good_as_the_last_of_the_best_is_as_good_as_found(tmp_path):
    case = make_case(tmp_path, dimensions=136, vectors=1000, queries=2)
    best, least = case.truth["texts"], case.least["texts"]

    def recall(*, last, score):
        frames = np.append(best[:, :-1], last, axis=1)
        scores = np.append(np.ones_like(best[:, :-1]), score, axis=1)
        hits = [Hits(scores=s, files=f // FRAMES_PER_FILE, pts_ms=f * 625) for s, f in zip(scores, frames, strict=True)]
        return case.recall("texts", hits)

    other = np.setdiff1d(np.arange(1000), best)[:2, None]
    assert recall(last=best[:, -1:], score=least[:, None]) == 1
    assert recall(last=other, score=least[:, None] - 5e-7) == 1
    assert recall(last=other, score=least[:, None] - 1e-5) == 0.9


def test_made_files_are_the_same_whenever_they_are_made():
    generator, again = MadeVectors(dimensions=136), MadeVectors(dimensions=136)
    (key,) = generator.keys(7, 1)

    assert generator.read_stored(key)[0].vectors.tolist() == again.file(7).tolist()
    assert np.linalg.norm(generator.file(7), axis=1) == pytest.approx(np.ones(FRAMES_PER_FILE), abs=1e-5)


@pytest.mark.system
def test_a_small_run_finds_all(tmp_path):
    options = ["--vectors", "3000", "--queries", "4", "--dimensions", "136", "--folder", str(tmp_path)]
    shown = CliRunner().invoke(app, ["search", *options])

    assert shown.exit_code == 0, shown.output
    assert "recall: 1 (at least 1)" in shown.output
