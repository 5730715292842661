"""Times are parsed like botocore does, only faster."""

from datetime import UTC

import pytest
from botocore.utils import parse_timestamp

from reelabel.sources.s3 import parse_time


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("2026-03-01T12:30:05.000Z", id="in a listing"),
        pytest.param("Sun, 01 Mar 2026 12:30:05 GMT", id="in a header"),
        pytest.param("1772368205", id="in neither format"),
    ],
)
def test_times_are_parsed_as_botocore_parses_them(text):
    time = parse_time(text)

    assert time == parse_timestamp(text)
    assert time.astimezone(UTC).isoformat() == "2026-03-01T12:30:05+00:00"
