import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.processes import free_port
from infra.settings import StoreSettings, WebSettings
from reelabel.errors import (
    ConfigurationError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectTooLargeError,
    RangesIgnoredError,
    StoreUnavailableError,
    VideoRefusedError,
)
from reelabel.sources import web
from reelabel.sources.object_store import ObjectStore
from tests.reelabel.sources.web_server import serving

BODY = bytes(range(256)) * 1000


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def store_with(**changed):
    web = WebSettings(**{"allow_private": True, "timeout_s": 5, "max_attempts": 3} | changed)
    return ObjectStore(StoreSettings(), web)


@pytest.fixture
def store():
    return store_with()


def test_a_video_is_described_and_read_completely_and_in_parts(server, store, tmp_path):
    uri = server.add("/good", body=BODY)

    info = store.stat(uri)

    assert (info.uri, info.size_bytes, info.fingerprint) == (uri, len(BODY), f'http:{len(BODY)}:"one"')
    assert store.read(uri, fingerprint=info.fingerprint) == BODY
    assert store.read_range(uri, start=1000, size=77, fingerprint=info.fingerprint) == BODY[1000:1077]
    assert store.download(uri, tmp_path / "video", fingerprint=info.fingerprint) == len(BODY)
    assert (tmp_path / "video").read_bytes() == BODY


def test_consecutive_requests_share_one_connection(server, store):
    uri = server.add("/reused", body=BODY)

    fingerprint = store.stat(uri).fingerprint
    for start in range(5):
        store.read_range(uri, start=start, size=10, fingerprint=fingerprint)

    assert len(server.pages["/reused"].connections) == 1


def test_a_part_ends_where_the_object_ends(server, store):
    uri = server.add("/short", body=b"0123456789")
    fingerprint = store.stat(uri).fingerprint

    assert store.read_range(uri, start=8, size=100, fingerprint=fingerprint) == b"89"
    assert store.read_range(uri, start=10, size=5, fingerprint=fingerprint) == b""


def test_an_empty_object_has_no_bytes(server, store):
    uri = server.add("/empty")

    assert store.stat(uri).size_bytes == 0
    assert store.read(uri, fingerprint=store.stat(uri).fingerprint) == b""


def test_a_server_without_ranges_serves_only_whole_objects(server, store):
    uri = server.add("/whole", body=BODY, ranges=False)
    fingerprint = store.stat(uri).fingerprint

    assert store.read(uri, fingerprint=fingerprint) == BODY
    with pytest.raises(RangesIgnoredError, match="download the whole object"):
        store.read_range(uri, start=10, size=10, fingerprint=fingerprint)


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param({"etags": ()}, id="no version"),
        pytest.param({"sized": False, "ranges": False}, id="no length"),
        pytest.param({"sized": False, "ranges": False, "etags": ()}, id="neither"),
    ],
)
def test_details_that_a_server_omits_are_derived_from_the_content(server, store, behaviour):
    uri = server.add("/untold", body=BODY, **behaviour)

    info = store.stat(uri)

    assert info.size_bytes == len(BODY)
    assert ":sha256:" in info.fingerprint
    assert store.read(uri, fingerprint=info.fingerprint) == BODY
    with pytest.raises(RangesIgnoredError):
        store.read_range(uri, start=0, size=10, fingerprint=info.fingerprint)
    server.pages["/untold"].body = BODY[::-1]
    with pytest.raises(ObjectChangedError):
        store.read(uri, fingerprint=info.fingerprint)


def test_determining_a_length_stops_at_the_limit(server, monkeypatch):
    monkeypatch.setattr(web, "_MAX_UNSIZED_BYTES", 1_000_000)
    uri = server.add("/endless", body=BODY, sized=False, ranges=False, endless=True)

    with pytest.raises(ObjectTooLargeError, match="1,000,000 bytes"):
        store_with().stat(uri)


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


def test_parts_without_a_version_are_not_joined_but_read_whole(server, store):
    uri = server.add("/little-untold", body=BODY, most_bytes=10_000, etags=())

    assert store.read(uri) == BODY
    assert server.requests("/little-untold") == ["bytes=0-", ""]


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
def test_a_server_that_refuses_ranges_and_the_whole_is_said_to(server, store, status):
    uri = server.add("/nothing", body=BODY, refuses_ranges=status, refuses_whole=status)

    with pytest.raises(VideoRefusedError, match=rf"refuses .*/nothing with and without a range \(HTTP {status}\)"):
        store.stat(uri)
    assert server.requests("/nothing") == ["bytes=0-0", ""]


@pytest.mark.parametrize("second", [pytest.param('"two"', id="another version"), pytest.param(None, id="unnamed")])
def test_an_object_replaced_between_two_attempts_is_never_mixed(server, store, tmp_path, second):
    uri = server.add("/mixed", body=BODY, cut_at=100_000, etags=('"one"', second))

    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.download(uri, tmp_path / "video")
    assert not (tmp_path / "video").exists()


def test_a_replaced_object_is_not_the_one_that_was_looked_at(server, store):
    uri = server.add("/replaced", body=BODY, etags=('"one"', '"two"'))
    seen = store.stat(uri).fingerprint

    for read in (
        lambda: store.read(uri, fingerprint=seen),
        lambda: store.read_range(uri, start=0, size=10, fingerprint=seen),
    ):
        with pytest.raises(ObjectChangedError, match="was replaced"):
            read()


@pytest.mark.parametrize("tells", [pytest.param("ETag", id="etag"), pytest.param("Last-Modified", id="time")])
def test_a_version_with_control_characters_can_be_stored_and_stays_distinct(server, store, tells):
    versions = ["a\0", "a\x01", "a\x7f", "a%00", "a\\0", "a"]
    uris = [server.add(f"/version-{i}", body=BODY, etags=(), headers={tells: v}) for i, v in enumerate(versions)]

    infos = [store.stat(uri) for uri in uris]

    assert all(info.fingerprint.isprintable() for info in infos)
    assert len({info.fingerprint for info in infos}) == len(versions)
    assert all(store.read(info.uri, fingerprint=info.fingerprint) == BODY for info in infos)


def test_a_body_shorter_than_its_header_claims_is_not_accepted(server, store):
    uri = server.add("/claims-more", body=BODY, ranges=False, claimed_bytes=len(BODY) + 1)

    with pytest.raises(StoreUnavailableError, match="3 attempts"):
        store.read(uri)


def test_a_range_answer_that_does_not_state_its_range_is_refused(server, store):
    uri = server.add("/nameless", statuses=(206,) * 3)

    with pytest.raises(VideoRefusedError, match="without Content-Range"):
        store.stat(uri)


def test_a_size_limit_holds_whatever_the_header_claims(server, store, tmp_path):
    honest = server.add("/honest", body=BODY)
    silent = server.add("/silent", body=BODY, sized=False, ranges=False, endless=True)

    for uri in (honest, silent):
        with pytest.raises(ObjectTooLargeError, match="1,000 bytes"):
            store.download(uri, tmp_path / "video", max_bytes=1000)
        assert not (tmp_path / "video").exists()


def test_a_request_that_fails_briefly_is_repeated(server, store):
    uri = server.add("/moment", body=BODY, statuses=(503, 429), headers={"Retry-After": "0"})

    assert store.read(uri) == BODY


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(web, "_LONGEST_WAIT_S", 0.02)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("wish", [{}, {"Retry-After": "3600"}], ids=["without a time", "for an hour"])
def test_a_server_that_says_that_it_is_busy_is_waited_for(server, tmp_path, wish):
    uri = server.add("/later", body=BODY, statuses=(503, 429) * 10, headers=wish)

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
    "wish",
    [
        pytest.param("1.5", id="fraction"),
        pytest.param("-5", id="negative"),
        pytest.param("soon", id="a word"),
        pytest.param("9" * 5000, id="digits"),
        pytest.param("Wed, 21 Oct 10000 07:28:00 GMT", id="year"),
        pytest.param("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", id="no year"),
    ],
)
def test_a_meaningless_retry_after_is_ignored(server, store, wish):
    uri = server.add("/wish", body=BODY, statuses=(503, 429), headers={"Retry-After": wish})

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

    with pytest.raises(error, match=rf"/refused\?\.\.\..*HTTP {status}") as caught:
        store.stat(uri)
    assert "secret" not in caught.value.message


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


def test_no_more_requests_run_at_once_than_allowed(server):
    uri = server.add("/busy", body=bytes(1024), pause_s=0.1)
    store = store_with(max_concurrency=2)
    started = time.monotonic()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(store.read, [uri] * 6))

    assert time.monotonic() - started >= 0.3


def test_writing_to_the_web_is_refused(store):
    for write in (lambda: store.replace("https://example.com/a", b""), lambda: list(store.list("https://example.com"))):
        with pytest.raises(ConfigurationError, match="is read-only"):
            write()


def test_an_unpickled_store_reads_the_web(server, store):
    uri = server.add("/pickled", body=BODY)

    assert pickle.loads(pickle.dumps(store)).read(uri) == BODY
