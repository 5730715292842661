import os

import pytest

from benchmarks.media.codecs import CONTAINERS
from benchmarks.media.matrix import Cell, matrix
from benchmarks.media.recipe import make_clip
from benchmarks.media.structures import STRUCTURES

pytestmark = pytest.mark.xdist_group("matrix")


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in matrix()])
def test_frames_equal_those_of_a_linear_decode(cell, verdict_of):
    assert verdict_of(cell).faults == ()


def test_no_cell_occurs_twice():
    assert len(set(matrix())) == len(matrix())


def test_every_container_and_structure_has_cells():
    assert {cell.container for cell in matrix()} == set(CONTAINERS)
    assert {cell.structure for cell in matrix()} == {"plain", *STRUCTURES}


def test_an_encoder_does_not_change_the_scheduling_policy_of_its_caller():
    policy = os.sched_getscheduler(0)

    make_clip(Cell("webm", "av1").recipe)

    assert os.sched_getscheduler(0) == policy
