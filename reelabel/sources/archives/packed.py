"""Archives of named members: tar and zip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reelabel.sources.archives.content import Content, pieces_of
from reelabel.sources.archives.memo import Memo
from reelabel.sources.archives.tar_index import read_tar
from reelabel.sources.archives.zip_index import data_start, inflate, read_zip, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reelabel.sources.archives.member_index import Member, MemberIndex
    from reelabel.sources.archives.ranged_file import ArchiveSource

_KEPT_STARTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFormat:
    """A format of archives.

    Attributes:
        suffix: The suffix of their names.
        read_index: Reads where the members are.
        open: Finds the bytes of one.
    """

    suffix: str
    read_index: Callable[[ArchiveSource], MemberIndex]
    open: Callable[[ArchiveSource, Member], Content]


def _open_tar_member(source: ArchiveSource, member: Member) -> Content:
    return Content(
        size=member.size,
        version=_version(member),
        read=lambda start, size: source.read(member.start + start, size),
        copy=partial(pieces_of, source, member.start, member.size),
    )


_zip_starts = Memo[int](_KEPT_STARTS)


def _open_zip_member(source: ArchiveSource, member: Member) -> Content:
    def begin() -> int:
        """Return where its bytes begin; read only when they are, for a look at many members takes one read."""
        key = source.info.uri, source.info.fingerprint, member.name
        return _zip_starts.get(key, lambda: data_start(source, member))

    def copy() -> Iterator[bytes]:
        check = inflate if member.method else verified
        return check(source, member, pieces_of(source, begin(), member.packed_size))

    return Content(
        size=member.size,
        version=f"{_version(member)}+{member.crc}",
        read=None if member.method else lambda start, size: source.read(begin() + start, size),
        copy=copy,
    )


def _version(member: Member) -> str:
    return f"{member.start}+{member.size}"


TAR = PackedFormat(suffix=".tar", read_index=read_tar, open=_open_tar_member)
ZIP = PackedFormat(suffix=".zip", read_index=read_zip, open=_open_zip_member)
PACKED_FORMATS = {each.suffix: each for each in (TAR, ZIP)}
