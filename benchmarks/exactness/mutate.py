"""Seeded damage to files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_MAX_STEPS = 3
_HEADER_BYTES = 2048
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
# ISO media boxes carry their size before the name, RIFF chunks after it.
_BOX = re.compile(
    rb"ftyp|moov|mvhd|trak|tkhd|edts|elst|mdia|mdhd|minf|stbl|stsd|stts|ctts|stss|stsz|stsc|stco|mdat|moof|traf|trun",
)
_CHUNK = re.compile(rb"RIFF|LIST|avih|strh|strf|idx1|00dc|OggS")
# EBML header, Segment, Cluster, Cues, Tracks, Info, BlockGroup, SimpleBlock: the size follows.
_ELEMENT = re.compile(
    rb"\x1a\x45\xdf\xa3|\x18\x53\x80\x67|\x1f\x43\xb6\x75|\x1c\x53\xbb\x6b|\x16\x54\xae\x6b|\x15\x49\xa9\x66|\xa0|\xa3",
)

# Pattern of a name, offset of a size or count from its first byte, and width of that number in bytes.
_SIZES = ((_BOX, -4, 4), (_BOX, 8, 4), (_BOX, 12, 4), (_CHUNK, 4, 4), (_ELEMENT, 1, 1), (_ELEMENT, 4, 1))


def mutate(data: bytes, random: Random) -> tuple[bytes, tuple[str, ...]]:
    """Apply one to three kinds of damage to a file.

    Args:
        data: The file; not empty.
        random: The same state gives the same mutant.

    Returns:
        The mutant, never empty, and the names of the kinds of damage.
    """
    steps = random.choices(_STEPS, k=random.randint(1, _MAX_STEPS))
    for step in steps:
        data = step(data, random) or data
    return data, tuple(step.__name__ for step in steps)


def flip_bits(data: bytes, random: Random) -> bytes:
    """Flip up to 32 bits anywhere."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 32)):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def overwrite_run(data: bytes, random: Random) -> bytes:
    """Overwrite up to 64 bytes with zeros, ones or noise."""
    at, length = random.randrange(len(data)), random.randint(1, 64)
    run = random.choice((bytes(length), b"\xff" * length, random.randbytes(length)))
    return (data[:at] + run + data[at + length :])[: len(data)]


def cut_tail(data: bytes, random: Random) -> bytes:
    """Keep the beginning, usually most of it."""
    return data[: max(1, int(len(data) * random.random() ** 0.3))]


def remove_slice(data: bytes, random: Random) -> bytes:
    """Remove up to a tenth of the file."""
    at = random.randrange(len(data))
    return data[:at] + data[at + random.randint(1, max(1, len(data) // 10)) :]


def repeat_slice(data: bytes, random: Random) -> bytes:
    """Copy up to a tenth of the file to another place."""
    source, target = random.randrange(len(data)), random.randrange(len(data))
    return data[:target] + data[source : source + random.randint(1, max(1, len(data) // 10))] + data[target:]


def edit_header(data: bytes, random: Random) -> bytes:
    """Set a number of 1, 2, 4 or 8 bytes near either end, where headers and indexes are."""
    width = random.choice((1, 2, 4, 8))
    near = random.randrange(min(_HEADER_BYTES, len(data)))
    at = near if random.random() < 0.6 else len(data) - 1 - near  # noqa: PLR2004
    return _with_number(data, at, width, random)


def edit_size(data: bytes, random: Random) -> bytes:
    """Change the size of a box, chunk or element, or the number after its name, whatever the container."""
    pattern, distance, width = random.choice(_SIZES)
    places = [match.start() + distance for match in pattern.finditer(data)]
    if not places:
        return edit_header(data, random)
    return _with_number(data, max(random.choice(places), 0), width, random)


def _with_number(data: bytes, at: int, width: int, random: Random) -> bytes:
    old = int.from_bytes(data[at : at + width], "big")
    new = random.choice((*_EXTREMES, old + 1, old - 1, old * 2, old // 2)) % (1 << 8 * width)
    number = new.to_bytes(width, random.choice(("big", "little")))
    return (data[:at] + number + data[at + width :])[: len(data)]


_STEPS = (flip_bits, overwrite_run, cut_tail, remove_slice, repeat_slice, edit_header, edit_size)
