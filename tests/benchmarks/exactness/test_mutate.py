import random

import pytest

from benchmarks.exactness.fuzz import BASES, make_mutants, mutate
from benchmarks.media.matrix import matrix

DATA = b"\x00\x00\x00\x20ftypisom" + random.Random(0).randbytes(5000) + b"\x00\x00\x00\x10moov" + bytes(9)


def test_the_same_seed_makes_the_same_mutants():
    bases = BASES[:4]
    some = make_mutants(range(3, 5), 7, bases)

    assert some == make_mutants(range(5), 7, bases)[3:]
    assert [mutant.data for mutant in some] != [mutant.data for mutant in make_mutants(range(3, 5), 8, bases)]


@pytest.mark.parametrize("data", [DATA, b"x", b"\xa3\x81"], ids=["a file", "one byte", "two bytes"])
def test_a_mutant_is_never_empty_and_rarely_equals_the_original(data):
    mutants = [mutate(data, random.Random(seed))[0] for seed in range(300)]

    assert all(mutants)
    assert sum(mutant == data for mutant in mutants) < 100


def test_every_mutation_is_used():
    steps = {step for seed in range(100) for step in mutate(DATA, random.Random(seed))[1]}

    assert steps == {
        "flip_bits",
        "overwrite_run",
        "cut_tail",
        "remove_slice",
        "repeat_slice",
        "edit_header",
        "edit_size",
    }


def test_containers_of_the_whole_matrix_are_damaged():
    assert {cell.container for cell in BASES} == {cell.container for cell in matrix()}
