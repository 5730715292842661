"""If header and frames of a file disagree, every difference from vLLM's loaders has a known reason."""

import pytest

from benchmarks.exactness.against_vllm import EQUAL, SAMPLINGS, Reason, compare_kinds, kinds, kinds_of, unexplained
from reelabel.errors import ConfigurationError

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("samplers-of-vllm")]


@pytest.fixture(scope="module")
def found():
    return compare_kinds(kinds())


def test_files_of_a_folder_are_compared_by_their_endings(tmp_path):
    with pytest.raises(ConfigurationError, match=r"There are no files in .*; name a folder of videos\."):
        kinds_of(tmp_path)
    for name in ("b.mp4", "a.mp4", "c.mkv"):
        (tmp_path / name).write_bytes(name.encode())

    found = {kind: {name: make() for name, make in files.items()} for kind, files in kinds_of(tmp_path).items()}

    assert found == {".mkv": {"c.mkv": b"c.mkv"}, ".mp4": {"a.mp4": b"a.mp4", "b.mp4": b"b.mp4"}}


def test_every_difference_has_a_known_reason(found):
    assert unexplained(found) == []


def test_picks_are_equal_if_vllm_can_read_what_the_header_states(found):
    trimmed = found["edit list that trims"]

    assert set(trimmed) == {EQUAL, Reason.REPEATED}
    assert len(trimmed[EQUAL]) >= len(SAMPLINGS) * 3


def test_wrong_headers_and_gaps_are_named_as_reasons(found):
    assert set(found["wrong header"]) <= {EQUAL, Reason.REPEATED, Reason.COUNT}
    assert any(Reason.UNREADABLE in outcome for outcome in found["AVI with gaps"])
