import av
import pytest

from infra.ffmpeg_holes import HOLES, holes_in, parse_release
from infra.health import check_ffmpeg


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("8.1.2", (8, 1, 2)),
        ("n8.1", (8, 1, 0)),
        ("7.1.4-0+deb13u1", (7, 1, 4)),
        ("N-121938-g3f4d1bbe85", None),
        ("git-2026-11-01", None),
    ],
)
def test_releases_are_told_from_builds_between_them(name, release):
    assert parse_release(name) == release


@pytest.mark.parametrize(
    ("release", "is_open"),
    [
        ((8, 0, 2), True),
        ((8, 0, 3), False),
        ((8, 1, 0), True),
        ((8, 1, 1), True),
        ((8, 1, 2), False),
        ((9, 0, 0), False),
    ],
)
def test_a_hole_is_closed_branch_by_branch(release, is_open):
    assert ("CVE-2026-8461" in {hole.cve for hole in holes_in(release)}) is is_open


def test_a_release_newer_than_every_record_has_no_known_hole():
    assert holes_in((99, 0, 0)) == []


def test_every_span_says_where_it_ends():
    ends = [(span.first, span.closed or span.last) for hole in HOLES for span in hole.spans]

    assert all(end is not None and first < end for first, end in ends)


def test_the_ffmpeg_in_place_is_named_with_its_holes():
    check = check_ffmpeg()
    release = parse_release(check.detail.split()[0])

    assert check.ok
    assert "libavformat" in check.detail
    built_in = av.codecs_available | av.formats_available
    assert all((hole.cve in check.detail) is (hole.part in built_in) for hole in holes_in(release))
    assert bool(check.advice) == ("CVE-" in check.detail)
