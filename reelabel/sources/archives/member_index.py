"""The member index: where the members of an archive are; read once an archive, and cached beside its frame files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reelabel import arrow as pa
from reelabel.errors import ArchiveUnreadableError, MemberMissingError
from reelabel.sources.object_info import redact_uri
from reelabel.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MEMBERS = 2_000_000
_MAX_SIZE = 2**63 - 1
_DAMAGE = b"damage"
_HERE = "./"
_TYPES = {
    "start": "int64",
    "size": "int64",
    "packed_size": "int64",
    "method": "int32",
    "crc": "int64",
    "refusal": "string",
}


class Member(NamedTuple):
    """One member.

    Attributes:
        name: Its name in the archive, without a leading `./`.
        start: Where it begins: its first byte in a tar, its local header in a zip.
        size: Its size, in bytes.
        packed_size: How many bytes it takes in the archive.
        method: How it is compressed, as zip numbers the methods; 0 if it is not.
        crc: CRC-32 of its bytes in a zip.
        refusal: Why it cannot be read, as a clause; empty if it can.
    """

    name: str
    start: int
    size: int
    packed_size: int
    method: int = 0
    crc: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class MemberIndex:
    """The members of one version of an archive.

    Attributes:
        members: By name.
        damage: What is wrong with the archive, as a clause; empty if nothing is. Members before the damage are known.
    """

    members: dict[str, Member]
    damage: str = ""

    @classmethod
    def of(cls, found: Iterable[Member], *, size_bytes: int, damage: str = "") -> MemberIndex:
        """Index members of an archive of `size_bytes`; those that share a name, or lie outside of it, are refused.

        The archive is damaged if one has no name.
        """
        members: dict[str, Member] = {}
        for member in found:
            name = plain_name(member.name)
            kept = member._replace(name=name, refusal=printable(member.refusal))
            if not member.name.partition("\0")[0]:
                damage = damage or "it has a member without a name; pack it again"
                continue
            if not 0 <= kept.start <= kept.start + kept.packed_size <= size_bytes or not 0 <= kept.size <= _MAX_SIZE:
                refusal = "is cut short by the end of the archive; copy the archive again"
                kept = Member(name, start=0, size=0, packed_size=0, refusal=refusal)  # what it states may be anything
            if name in members:
                refusal = "occurs more than once, so that it is unclear which one is meant; rename one of them"
                kept = kept._replace(refusal=refusal)
            members[name] = kept
        return cls(members, damage)

    def find(self, name: str, uri: str) -> Member:
        """Return a member that can be read; `uri` is that of the archive.

        Raises:
            MemberMissingError: There is none of that name.
            ArchiveUnreadableError: It cannot be read, or the archive is damaged before it.
        """
        shown = redact_uri(uri)
        member = self.members.get(plain_name(name))
        if member is None and self.damage:
            raise ArchiveUnreadableError(f"{shown} is damaged, so that {name} is not found in it: {self.damage}.")
        if member is None:
            raise MemberMissingError(f"There is no member {name} in {shown}; check its name{self._hint(name)}.")
        if member.refusal:
            raise ArchiveUnreadableError(f"The member {name} of {shown} {member.refusal}.")
        return member

    def _hint(self, name: str) -> str:
        """Name a member that has the same last part."""
        last = name.rpartition("/")[2]
        alike = next((each for each in self.members if each.rpartition("/")[2] == last), None)
        return f": it has {alike}" if alike and last else ""


def encode_members(index: MemberIndex) -> bytes:
    """Encode a member index as an Arrow file, for the cache."""
    rows = list(index.members.values())
    names = pa.array([row.name.encode(errors="surrogateescape") for row in rows], pa.large_binary())
    values = {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in _TYPES.items()}
    table = pa.table({"name": names, **values}).replace_schema_metadata({_DAMAGE: index.damage.encode()})
    return pa.arrow_file(table, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def decode_members(data: bytes | memoryview) -> MemberIndex:
    """Decode the result of `encode_members`.

    Raises:
        ValueError: The bytes are something else.
    """
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        damage = table.schema.metadata[_DAMAGE].decode()
        names = [name.decode(errors="surrogateescape") for name in table["name"].to_pylist()]
        members = map(Member, names, *(table[name].to_pylist() for name in _TYPES))
        return MemberIndex({member.name: member for member in members}, damage)
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise ValueError(f"no member index ({type(error).__name__})") from None


def plain_name(name: str) -> str:
    """Return a member's name without a leading `./`, which `tar` writes if it is given a folder."""
    while name.startswith(_HERE):
        name = name.removeprefix(_HERE)
    return name
