"""Codecs that PyAV can decode but not encode.

The files are FFmpeg's test pattern, 40 frames, by its command line: `-f lavfi -i
testsrc2=size=96x64:rate=25:duration=1.6 -c:v libtheora -g 8 -q:v 4`; the odd one `size=90x58`,
`-pix_fmt yuv444p -g 64 -q:v 3`.
"""

from pathlib import Path

import pytest

from benchmarks.exactness.conformance import check_file

SAMPLES = sorted((Path(__file__).parents[1] / "data").glob("theora*"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in SAMPLES])
def test_frames_of_samples_equal_those_of_a_linear_decode(path):
    result = check_file(path)

    assert result.faults == ()
    assert result.frames == 40


def test_the_samples_are_present():
    assert len(SAMPLES) == 3
