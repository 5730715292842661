import pytest
from hypothesis import given
from hypothesis import strategies as st

from reelabel.errors import ForeignSealError, SealError
from reelabel.seal import NO_KEY, Seal

SEAL = Seal(b"k" * 32)
SEALED = SEAL.wrap("plans/1/0", b"the jobs")


@pytest.mark.parametrize("data", [b"data", b""])
@pytest.mark.parametrize("seal", [SEAL, NO_KEY])
def test_sealed_bytes_are_read_back(seal, data):
    assert seal.unwrap("a name", seal.wrap("a name", data)) == data


@given(at=st.integers(0, len(SEALED) - 1), bit=st.integers(0, 7))
def test_one_flipped_bit_anywhere_breaks_the_seal(at, bit):
    altered = bytearray(SEALED)
    altered[at] ^= 1 << bit

    with pytest.raises(SealError):
        SEAL.unwrap("plans/1/0", bytes(altered))


@given(st.integers(0, len(SEALED) - 1))
def test_a_truncated_file_has_no_valid_seal(length):
    with pytest.raises(SealError):
        SEAL.unwrap("plans/1/0", SEALED[:length])


@pytest.mark.parametrize("seal", [SEAL, NO_KEY])
def test_a_file_is_not_valid_under_another_name(seal):
    with pytest.raises(SealError, match="Signature mismatch"):
        seal.unwrap("plans/1/1", seal.wrap("plans/1/0", b"the jobs"))


def test_the_border_between_name_and_bytes_cannot_be_shifted():
    assert SEAL.make("ab", b"c") != SEAL.make("a", b"bc")


@pytest.mark.parametrize("other", [NO_KEY, Seal(b"another key, as long as the first")])
def test_a_file_with_another_seal_or_none_is_distinguished_from_an_altered_one(other):
    with pytest.raises(ForeignSealError, match=r"another store\.mac_key"):
        SEAL.unwrap("plans/1/0", other.wrap("plans/1/0", b"the jobs"))
    with pytest.raises(ForeignSealError):
        other.unwrap("plans/1/0", SEALED)


def test_the_key_is_not_shown():
    assert "kkk" not in repr(SEAL)
