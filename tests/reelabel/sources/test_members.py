"""How archives are read: in blocks that grow, and once for all who ask at the same time."""

import io
import random
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from reelabel.errors import ArchiveUnreadableError, MemberMissingError, ObjectChangedError
from reelabel.sources.members import Member, MemberIndex, RangedFile, SingleFlightCache
from reelabel.sources.object_info import ObjectInfo
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.source import Source
from tests.reelabel.sources.archives.held_archive import HeldArchive

DATA = random.Random(5).randbytes(400_000)


def test_an_archive_is_read_like_a_file_in_memory():
    rng, file, expected = random.Random(6), RangedFile(HeldArchive(DATA)), io.BytesIO(DATA)
    for _ in range(400):
        place = rng.choice(
            [(rng.randrange(len(DATA) + 50), 0), (rng.randrange(-900, 900), 1), (-rng.randrange(900), 2)]
        )
        if rng.random() < 0.5:
            position = max(0, {0: 0, 1: expected.tell(), 2: len(DATA)}[place[1]] + place[0])
            assert file.seek(*place) == expected.seek(position) == file.tell()
        size = rng.choice([0, 1, 512, 5000, rng.randrange(100_000)])
        assert file.read(size) == expected.read(size)
    file.seek(-100, 2)
    assert (file.read(), file.read(5)) == (DATA[-100:], b"")


def test_what_is_read_in_sequence_is_read_once_in_ever_larger_blocks():
    archive = HeldArchive(DATA)
    file = RangedFile(archive)

    assert b"".join(iter(lambda: file.read(512), b"")) == DATA
    assert archive.bytes_read == len(DATA)
    assert [size for _, size in archive.reads[:4]] == [4096, 8192, 16_384, 32_768]
    file.seek(1000)
    file.read(512)
    assert archive.reads[-1] == (1000, 4096)
    assert max(size for _, size in archive.reads) < len(DATA)


class Endless(Source):
    """An archive that claims to be large, and ends early."""

    def __init__(self):
        super().__init__(ObjectInfo(uri="s3://b/a.zip", size_bytes=2**40, fingerprint="1"))

    def read(self, start, size):
        return bytes(min(size, max(0, 5000 - start)))


def test_headers_of_any_size_are_not_read_and_an_archive_that_ends_early_was_replaced():
    file = RangedFile(Endless())

    with pytest.raises(ArchiveUnreadableError, match=r"a\.zip states 268,435,457 bytes of headers"):
        file.read(256 * 1024**2 + 1)
    assert file.read(4000) == bytes(4000)
    with pytest.raises(ObjectChangedError):
        file.read(4000)


@pytest.mark.parametrize(
    ("member", "is_read"),
    [
        (Member("a", 0, 9, 9), True),
        (Member("a", 4, 99, 5), True),
        (Member("a", 9, 0, 0), True),
        (Member("a", 5, 5, 5), False),
        (Member("a", 10, 0, 0), False),
        (Member("a", 3, 2, -1), False),
        (Member("a", -1, 2, 2), False),
        (Member("a", 0, -1, 2), False),
        (Member("a", 0, 2**63, 2), False),
    ],
)
def test_a_member_lies_in_its_archive(member, is_read):
    index = MemberIndex.of([Member("./", 0, 0, 0), member, Member("b", 0, 1, 1)], size_bytes=9)

    assert (index.find("b", "a.tar").size, index.damage) == (1, "")
    if is_read:
        assert index.find("./a", "a.tar") == member
    else:
        with pytest.raises(ArchiveUnreadableError, match="cut short by the end of the archive"):
            index.find("a", "a.tar")


@pytest.mark.parametrize(
    ("name", "hint"), [("x/a.mp4", ": it has clips/a.mp4."), ("b.mp4", "check its name."), ("x/", "check its name.")]
)
def test_a_missing_member_may_be_in_another_folder(name, hint):
    index = MemberIndex.of(
        [Member("first", 0, 1, 1), Member("clips/a.mp4", 0, 1, 1), Member("y/", 0, 0, 0)], size_bytes=9
    )

    with pytest.raises(MemberMissingError) as raised:
        index.find(name, "a.tar")
    assert raised.value.message.endswith(hint)


def test_a_member_notices_that_its_archive_was_written_to(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clip", b"clip")

    with ObjectStore().open(f"{path}#clip") as member:
        member.check_unchanged()
        path.write_bytes(b"another")
        with pytest.raises(ObjectChangedError, match=r"a\.zip was replaced"):
            member.check_unchanged()


def test_a_fingerprint_that_is_not_of_a_member_is_of_another_version():
    with pytest.raises(ObjectChangedError, match="was replaced"):
        ObjectStore().read("s3://b/a.tar#clip", fingerprint="s3:5:abc")


def test_results_are_made_once_and_those_used_last_are_kept():
    cache, computed = SingleFlightCache(2), []

    got = [cache.get(key, lambda key=key: computed.append(key) or key.upper()) for key in "ababacacb"]

    assert "".join(got) == "ABABACACB"
    assert computed == ["a", "b", "c", "b"]


def test_a_failure_is_not_kept():
    cache, causes = SingleFlightCache(2), iter([MemberMissingError("gone"), RuntimeError("fault")])

    def fail():
        raise next(causes)

    for kind in (MemberMissingError, RuntimeError):
        with pytest.raises(kind):
            cache.get("a", fail)
    assert cache.get("a", lambda: 7) == 7


def ask_twice(outcome, other):
    """Ask for a result that raises or returns `outcome`, and, while that is being made, in this thread for the same."""
    has_begun, may_end = threading.Event(), threading.Event()

    class Watched(str):
        __slots__ = ()

        def __hash__(self):  # when it is looked up
            may_end.set()
            return super().__hash__()

    def make():
        has_begun.set()
        may_end.wait(60)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    cache = SingleFlightCache(2)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(cache.get, "key", make)
        has_begun.wait(60)
        try:
            return first, cache.get(Watched("key"), other)
        except Exception as error:  # noqa: BLE001 - what the second is told
            return first, error


def test_who_asks_meanwhile_shares_the_result_or_the_known_failure_and_else_tries_alone():
    error = MemberMissingError("gone")

    _, shared = ask_twice("made", lambda: "again")
    first, second = ask_twice(error, lambda: "again")
    _, own = ask_twice(RuntimeError("fault"), lambda: "again")

    assert (shared, own) == ("made", "again")
    assert isinstance(second, MemberMissingError)
    assert second.message == "gone"
    assert len({id(each) for each in (error, second, first.exception())}) == 3  # each with a traceback of its own
