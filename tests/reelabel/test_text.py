import pickle

import pytest

from infra.errors import ManifestError
from reelabel.errors import ReelabelError, VideoMissingError
from reelabel.text import escape_controls, first_control, on_one_line, quoted, read_error, reason_of
from tests.hostile import HOSTILE, SHOWN, hidden_in


def test_invisible_characters_are_shown():
    assert escape_controls(HOSTILE) == SHOWN
    assert escape_controls("\udcff\0\ufeff\U000e0041") == "<U+DCFF>␀<U+FEFF><U+E0041>"
    assert escape_controls(SHOWN) == SHOWN
    assert escape_controls("a\u200cb\u200d") == "a<U+200C>b<U+200D>"


@pytest.mark.parametrize("text", ["", "clip 7", "é", "日本語\u3000x", "שלום", "مرحبا", "👍🏽", "a\u00a0b", "\ue0b0"])
def test_visible_characters_are_unchanged(text):
    assert escape_controls(text) == text
    assert first_control(text) == ""


@pytest.mark.parametrize("text", ["می\u200cرود", "क्\u200dष", "👨\u200d👩\u200d👧"], ids=["fa", "hi", "emoji"])
def test_what_joins_the_letters_of_a_script_is_unchanged(text):
    assert escape_controls(text) == text


def test_our_own_line_breaks_are_kept():
    assert escape_controls("a\nb\tc\r", keep="\n\t") == "a\nb\tc␍"


@pytest.mark.parametrize("error", [ReelabelError, VideoMissingError, ManifestError])
def test_an_error_message_is_one_printable_line_even_after_pickling(error):
    raised = error(f"There is no video at {HOSTILE}.")

    for each in (raised, pickle.loads(pickle.dumps(raised))):
        assert each.message == str(each) == f"There is no video at {SHOWN}."


def test_each_fault_of_a_manifest_is_one_line():
    error = pickle.loads(pickle.dumps(ManifestError("m.parquet is not valid:", ["one", HOSTILE])))

    assert error.message.splitlines() == ["m.parquet is not valid:", "  - one", f"  - {SHOWN}"]
    assert hidden_in(str(error)) == []


def test_a_message_with_lines_of_its_own_fits_on_one_line_without_pictures_of_its_line_breaks():
    message = ManifestError("m.parquet is not valid:", ["prompt is null.", "a\nb is empty."]).message

    assert on_one_line(message) == "m.parquet is not valid: prompt is null. a␊b is empty."


def test_long_values_are_cut():
    assert quoted("a" * 98) == f"'{'a' * 98}'"
    assert quoted("a" * 1000) == f"'{'a' * 99}... (1,002 characters)"


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe", "it is not a text in UTF-8"), (None, "No such file or directory")]
)
def test_a_file_that_cannot_be_read_is_explained_without_the_words_of_python(tmp_path, content, message):
    path = tmp_path / "ids.txt"
    if content:
        path.write_bytes(content)

    with pytest.raises((OSError, ValueError)) as raised:
        path.read_text(encoding="utf-8")

    assert read_error(raised.value) == message


def test_the_error_of_a_package_is_the_beginning_of_one_line_without_colours():
    reason = reason_of("Generic error\n   \x1b[31m↳\x1b[0m GET failed\r\n\x07" + "x" * 1_000)

    assert reason.startswith("Generic error ↳ GET failed ␇xxx")
    assert len(reason) == 300
