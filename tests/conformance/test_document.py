from pathlib import Path

import pytest

from benchmarks.exactness.document import conformance_document
from benchmarks.media.matrix import matrix

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("matrix")]

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"


def test_the_document_matches_the_matrix(verdict_of):
    document = conformance_document({cell: verdict_of(cell) for cell in matrix()})

    assert DOCUMENT.read_text() == document, "run `make conformance`"
