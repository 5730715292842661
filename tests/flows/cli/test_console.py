"""Small pieces of terminal output, and checks of options before any work."""

import resource
import subprocess
import sys

import pytest

from flows.cli.console import cell, list_times, require_format, require_parent_folder, require_sheet, write_output
from flows.cli.rows.formats import check_format
from reelabel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (0, "0"),
        (1_234_567, "1,234,567"),
        (0.12345, "0.123"),
        ("two\nlines\x1b[31m", "two\u240alines\u241b[31m"),
        ("[red]no markup", "[red]no markup"),
    ],
)
def test_a_cell_has_one_line_and_rounded_figures(value, shown):
    assert str(cell(value)) == shown


def test_times_that_repeat_are_counted_and_long_lists_end():
    assert list_times([0, 1.25, 1.25, 2]) == ["0.000 s", "1.250 s (2x)", "2.000 s"]
    assert list_times(range(16))[-1] == "15.000 s"
    assert list_times(range(1_020))[-2:] == ["15.000 s", "and 1,004 more"]


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (
            lambda _folder: require_format("xml", "table", "json", "csv"),
            "Unknown --format xml; use table, json or csv.",
        ),
        (lambda _folder: check_format("xml", raw=False), "Unknown --format xml; use table, json, csv or parquet."),
        (lambda _folder: check_format("json", raw=True), "--raw is for --format csv; the other formats never change"),
        (lambda folder: require_parent_folder(f"{folder}/gone/a.json"), "gone does not exist; create it first."),
        (lambda folder: require_parent_folder(f"{folder}/file/a.json"), "file does not exist; create it first."),
        (lambda folder: require_parent_folder(f"{folder}/"), "/: it is a folder; name a file."),
        (lambda folder: require_sheet(f"{folder}/gone/a.png"), "gone does not exist; create it first."),
        (lambda folder: require_sheet(f"{folder}/sheet.mp4"), "sheet.mp4 is not an image file; use a name such as"),
        (lambda folder: require_sheet(f"{folder}/sheet"), "sheet is not an image file; use a name such as sheet.png."),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(tmp_path, check, sentence):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError) as raised:
        check(tmp_path)

    assert sentence in raised.value.message


def test_what_can_be_written_is_accepted(tmp_path):
    require_format("csv", "table", "csv")
    check_format("csv", raw=True)
    require_sheet(f"{tmp_path}/sheet.PNG")


_WRITES = "import sys; from flows.cli.console import write_output; write_output(sys.argv[1], 'new' * 100_000)"


def test_an_output_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path):
    page = tmp_path / "page?.html"
    page.write_text("old")

    failed = subprocess.run(
        [sys.executable, "-c", _WRITES, str(page)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )

    assert "File too large" in failed.stderr
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_what_is_no_regular_file_is_written_to(tmp_path):
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to(page)

    write_output(link, "new")
    write_output("/dev/null", "new")

    assert (link.is_symlink(), page.read_text()) == (True, "new")
