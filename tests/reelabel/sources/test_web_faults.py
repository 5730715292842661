"""Web servers that interrupt, refuse, are busy, or stay silent."""

import time

import pytest

from infra.processes import free_port
from reelabel.errors import (
    ObjectMissingError,
    RangesIgnoredError,
    StoreUnavailableError,
    VideoRefusedError,
)
from reelabel.sources import web
from tests.reelabel.sources.web_server import serving
from tests.reelabel.sources.web_store import BODY, server, store, store_with

__all__ = ["server", "store"]


def test_an_interrupted_transfer_resumes_where_it_stopped(server, store, tmp_path):
    uri = server.add("/cut", body=BODY, cut_at=100_000, cuts=2)

    assert store.download(uri, tmp_path / "video") == len(BODY)
    assert (tmp_path / "video").read_bytes() == BODY
    assert server.requests("/cut") == ["bytes=0-", "bytes=100000-", "bytes=200000-"]


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param({"ranges": False}, id="no ranges"),
        pytest.param({"etags": ()}, id="no version"),
        pytest.param({"chunked": True, "ranges": False}, id="chunked"),
    ],
)
def test_an_interrupted_transfer_that_cannot_resume_starts_over(server, store, tmp_path, behaviour):
    uri = server.add("/again", body=BODY, cut_at=100_000, **behaviour)

    store.download(uri, tmp_path / "video")

    assert (tmp_path / "video").read_bytes() == BODY


def test_a_server_that_sends_few_bytes_at_a_time_makes_progress(server, tmp_path):
    store = store_with(max_attempts=1)
    uri = server.add("/little", body=BODY, most_bytes=10_000)
    fingerprint = store.stat(uri).fingerprint

    assert store.read(uri, fingerprint=fingerprint) == BODY
    assert store.download(uri, tmp_path / "video") == len(BODY)
    assert (tmp_path / "video").read_bytes() == BODY
    assert store.read_range(uri, start=7, size=100_000, fingerprint=fingerprint) == BODY[7:100_007]
    assert store.read_range(uri, start=200_000, size=1 << 20, fingerprint=fingerprint) == BODY[200_000:]


def test_many_interruptions_after_progress_do_not_fail_a_transfer(server, store):
    uri = server.add("/often-cut", body=BODY, cut_at=10_000, cuts=20)

    assert store.read(uri) == BODY


@pytest.mark.parametrize("status", [400, 406, 416, 501])
def test_a_video_whose_server_refuses_ranges_is_read_whole(server, store, tmp_path, status):
    uri = server.add("/no-part", body=BODY, refuses_ranges=status)

    info = store.stat(uri)

    assert info.fingerprint == f'http:{len(BODY)}:"one"'
    assert store.download(uri, tmp_path / "video", fingerprint=info.fingerprint) == len(BODY)
    assert (tmp_path / "video").read_bytes() == BODY
    with pytest.raises(RangesIgnoredError):
        store.read_range(uri, start=10, size=10, fingerprint=info.fingerprint)


@pytest.mark.parametrize("status", [400, 406, 416, 501])
def test_a_server_that_refuses_requests_with_and_without_a_range_is_named(server, store, status):
    uri = server.add("/nothing", body=BODY, refuses_ranges=status, refuses_whole=status)

    with pytest.raises(VideoRefusedError, match=rf"refuses .*/nothing with and without a range \(HTTP {status}\)"):
        store.stat(uri)
    assert server.requests("/nothing") == ["bytes=0-0", ""]


def test_a_body_shorter_than_its_header_claims_is_not_accepted(server, store):
    uri = server.add("/claims-more", body=BODY, ranges=False, claimed_bytes=len(BODY) + 1)

    with pytest.raises(StoreUnavailableError, match="3 attempts"):
        store.read(uri)


def test_a_range_answer_that_does_not_state_its_range_is_refused(server, store):
    uri = server.add("/nameless", statuses=(206,) * 3)

    with pytest.raises(VideoRefusedError, match="without Content-Range"):
        store.stat(uri)


def test_a_request_that_fails_briefly_is_repeated(server, store):
    uri = server.add("/moment", body=BODY, statuses=(503, 429), headers={"Retry-After": "0"})

    assert store.read(uri) == BODY


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("status", [408, 425, 500, 504])
def test_a_server_that_fails_once_is_asked_again(server, store, status):
    uri = server.add("/once-more", body=BODY, statuses=(status,))

    assert store.read(uri) == BODY
    assert len(server.requests("/once-more")) == 2


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(web, "_LONGEST_WAIT_S", 0.02)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "3600"}], ids=["without a time", "for an hour"])
def test_a_server_that_says_that_it_is_busy_is_waited_for(server, tmp_path, headers):
    uri = server.add("/later", body=BODY, statuses=(503, 429) * 10, headers=headers)

    assert store_with(max_attempts=2).download(uri, tmp_path / "video") == len(BODY)
    assert (tmp_path / "video").read_bytes() == BODY


@pytest.mark.usefixtures("no_pauses")
def test_parts_that_a_busy_server_sends_in_between_are_put_together(server):
    uri = server.add("/now-and-then", body=BODY, most_bytes=50_000, busy=3)
    store = store_with(max_attempts=2)
    fingerprint = store.stat(uri).fingerprint

    assert store.read(uri, fingerprint=fingerprint) == BODY
    assert store.read_range(uri, start=7, size=200_000, fingerprint=fingerprint) == BODY[7:200_007]


@pytest.mark.usefixtures("no_pauses")
def test_a_server_that_refuses_everything_is_waited_for_once_and_again_after_it_has_answered():
    with serving() as server:
        store = store_with(max_attempts=3, total_timeout_s=1)
        uris = [server.add(f"/{number}", body=BODY, statuses=(503,) * 1000) for number in range(2)]

        with pytest.raises(StoreUnavailableError, match=r"/0 .* web\.total_timeout_s"):
            store.stat(uris[0])
        with pytest.raises(StoreUnavailableError, match=r"/1 could not be read in 3 attempts \(HTTP 503\)"):
            store.stat(uris[1])
        assert 3 <= len(server.requests("/1")) < len(server.requests("/0"))
        store.stat(server.add("/well", body=BODY))
        with pytest.raises(StoreUnavailableError, match=r"web\.total_timeout_s"):
            store.stat(uris[1])


def test_one_attempt_waits_for_nothing(server):
    uri = server.add("/once", statuses=(503,) * 9)

    with pytest.raises(StoreUnavailableError, match="in 1 attempt "):
        store_with(max_attempts=1).stat(uri)
    assert len(server.requests("/once")) == 1


@pytest.mark.parametrize(
    "retry_after",
    [
        pytest.param("1.5", id="fraction"),
        pytest.param("-5", id="negative"),
        pytest.param("soon", id="a word"),
        pytest.param("9" * 5000, id="digits"),
        pytest.param("Wed, 21 Oct 10000 07:28:00 GMT", id="year"),
        pytest.param("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", id="no year"),
    ],
)
def test_a_meaningless_retry_after_is_ignored(server, store, retry_after):
    uri = server.add("/wish", body=BODY, statuses=(503, 429), headers={"Retry-After": retry_after})

    assert store.read(uri) == BODY


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(404, ObjectMissingError, id="not found"),
        pytest.param(410, ObjectMissingError, id="gone"),
        pytest.param(401, VideoRefusedError, id="login"),
        pytest.param(403, VideoRefusedError, id="forbidden"),
        pytest.param(500, StoreUnavailableError, id="server error"),
    ],
)
def test_a_refusal_is_reported_without_secrets_of_the_address(server, store, status, error):
    uri = server.add("/refused", statuses=(status,) * 3, headers={"Retry-After": "0"}) + "?signature=secret"

    with pytest.raises(error, match=rf"/refused\?\.\.\..*HTTP {status}") as raised:
        store.stat(uri)
    assert "secret" not in raised.value.message


def test_a_silent_server_is_given_up(server):
    uri = server.add("/slow", body=BODY, pause_s=1)
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match="ReadTimeoutError"):
        store_with(timeout_s=0.1, max_attempts=2).stat(uri)
    assert time.monotonic() - started < 15


def test_a_steady_trickle_ends_at_the_deadline(server):
    uri = server.add("/trickle", body=BODY, pause_s=0.02)

    with pytest.raises(StoreUnavailableError, match=r"web\.total_timeout_s"):
        store_with(total_timeout_s=0.3).read(uri)


def test_a_trickled_header_ends_at_the_deadline(server):
    uri = server.add("/trickled-header", body=BODY, header_pause_s=0.05)
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match=r"/trickled-header took longer than web\.total_timeout_s"):
        store_with(total_timeout_s=1).stat(uri)
    assert time.monotonic() - started < 5


def test_the_rest_of_an_unneeded_answer_is_not_awaited(server, store):
    uri = server.add("/trickled-rest", body=bytes(1000), ranges=False, pause_s=0.05, step_bytes=1)
    started = time.monotonic()

    assert store.stat(uri).size_bytes == 1000
    assert time.monotonic() - started < 15


def test_no_server_can_delay_us_past_the_deadline(server):
    uri = server.add("/later", statuses=(503,) * 3, headers={"Retry-After": "20"})
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match=r"web\.total_timeout_s"):
        store_with(total_timeout_s=1).stat(uri)
    assert time.monotonic() - started < 15


def test_an_address_without_a_server_is_unavailable():
    with pytest.raises(StoreUnavailableError, match="2 attempts"):
        store_with(max_attempts=2).stat(f"http://127.0.0.1:{free_port()}/clip.mp4")
