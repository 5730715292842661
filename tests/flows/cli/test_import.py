"""`reelabel manifest import`: all faults at once, in one format, and past them with `--keep-going`."""

import json
import os

import polars as pl
import pytest

from tests.command_line import reelabel

HEADER = "job_id,video_uri,prompt,choices,start_s\n"
ROWS = (
    "a,a.mp4,Who?,x|y,1\nb,,Who?,x|y,1\nc,c.mp4,Who?,x|y,soon\na,d.mp4,Who?,x|y,\nd,e.mp4,Who?,x|y\n=cmd,e.mp4,,x|y,2\n"
)


def imported(folder, text, *options, name="jobs.csv"):
    (folder / name).write_text(text)
    return reelabel({}, "manifest", "import", str(folder / name), str(folder / "jobs.parquet"), *options)


def test_all_faults_of_a_csv_are_listed_by_line(tmp_path):
    run = imported(tmp_path, HEADER + ROWS)

    assert run.returncode == 2
    for fault in (
        "start_s 'soon' is not a time; write seconds, such as 90.5, or 1:30.5. 1 row, first line 4 (job_id 'c').",
        "the number of cells differs from that of the header. 1 row, first line 6.",
        "video_uri is null. 1 row, first line 3 (job_id 'b').",
        "prompt is null. 1 row, first line 7 (job_id '=cmd').",
        "job_id is not unique. 2 rows, first line 2 (job_id 'a'), line 5 (job_id 'a').",
    ):
        assert fault in run.stderr
    assert not (tmp_path / "jobs.parquet").exists()


def test_valid_rows_are_kept_and_invalid_ones_listed_with_their_reasons(tmp_path):
    run = imported(tmp_path, HEADER + ROWS, "--keep-going")

    assert run.returncode == 1, run.stderr
    assert pl.read_parquet(tmp_path / "jobs.parquet")["job_id"].to_list() == ["a"]
    assert "Wrote 1 job to" in run.stdout
    assert f"Rejected 5 rows: {tmp_path}/rejected.csv has the reasons." in run.stdout
    rejected = pl.read_csv(tmp_path / "rejected.csv")
    reasons = dict(zip(rejected["place"], rejected["reason"], strict=True))
    assert reasons["line 5"] == "job_id is that of an earlier row."
    assert reasons["line 3"] == "video_uri is null."
    assert set(reasons) == {f"line {number}" for number in range(3, 8)}
    assert "'=cmd" in rejected["job_id"].to_list()  # no spreadsheet evaluates it


def test_a_source_without_a_valid_row_is_always_refused(tmp_path):
    imported(tmp_path, HEADER + ROWS, "--keep-going")
    of_an_earlier_import = (tmp_path / "rejected.csv").exists()

    run = imported(tmp_path, HEADER + ",a.mp4,,,\n", "--keep-going")

    assert run.returncode == 2
    assert "job_id is null. 1 row, first line 2." in run.stderr
    assert of_an_earlier_import
    assert not (tmp_path / "rejected.csv").exists()


def test_rejected_rows_can_be_corrected_and_imported_but_not_from_the_file_they_are_written_to(tmp_path):
    run = imported(tmp_path, HEADER + ROWS, "--keep-going", name="rejected.csv")

    assert run.returncode == 2
    assert "rejected.csv is the source, and rejected rows would replace it; rename it." in " ".join(run.stderr.split())
    assert (tmp_path / "rejected.csv").read_text() == HEADER + ROWS


def test_columns_of_a_csv_are_mapped_by_name(tmp_path):
    text = "job_id,clip,question,choices,note\na,a.mp4,Who?,x|y,z\n"
    options = ("--column", "prompt=question", "--column", "video_uri=clip")

    run = imported(tmp_path, text, *options)

    assert run.returncode == 0, run.stderr
    assert "Dropped 1 column of" in run.stdout
    assert pl.read_parquet(tmp_path / "jobs.parquet").row(0) == ("a", "a.mp4", "Who?", ["x", "y"])
    assert "lacks the column question2;" in imported(tmp_path, text, *options, "--column", "prompt=question2").stderr
    swapped = imported(tmp_path, text, "--column", "question=prompt").stderr
    assert "Unknown manifest columns: question; write --column NAME=COLUMN, where NAME is one of job_id" in swapped


@pytest.mark.parametrize("layout", ["csv", "nextqa"])
def test_an_empty_video_cell_is_an_empty_uri_not_the_folder(tmp_path, layout):
    if layout == "csv":
        text = "n,file,q,c\na,,Who?,x|y\n"
        columns = [
            part for pair in ("job_id=n", "video_uri=file", "prompt=q", "choices=c") for part in ("--column", pair)
        ]
    else:
        text, columns = "video,question,answer,qid,type,a0,a1,a2,a3,a4\n,what,0,6,CH,a,b,c,d,e\n", []

    run = imported(tmp_path, text, "--layout", layout, "--videos", "s3://b/clips", *columns)

    assert run.returncode == 2
    assert "video_uri is empty. 1 row, first line 2 (job_id " in run.stderr


def batch_line(job_id, text="Colour?", **body):
    content = [{"type": "video_url", "video_url": {"url": "s3://b/v.mp4"}}, {"type": "text", "text": text}]
    return json.dumps({"custom_id": job_id, "body": {"messages": [{"role": "user", "content": content}]} | body}) + "\n"


def test_all_faults_of_a_batch_are_listed_by_line(tmp_path):
    lines = "{\n" + batch_line("a", max_tokens=0) + batch_line("b", metadata={"choices": "red"}) + "[1]\n"

    run = imported(tmp_path, lines, name="jobs.jsonl")

    assert run.returncode == 2
    assert "first line 1" in run.stderr
    assert "max_tokens '0' is no positive number. 1 row, first line 2 (job_id 'a')" in run.stderr
    assert "metadata.choices 'red' is not a list of strings. 1 row, first line 3 (job_id 'b')" in run.stderr
    assert "first line 4" in run.stderr


def test_requests_without_choices_are_imported_and_reported_as_answered_in_words(tmp_path):
    run = imported(tmp_path, batch_line("a", text="What is it?", max_tokens=300), name="jobs.jsonl")

    assert run.returncode == 0, run.stderr
    assert "1 request without choices will be answered in words; run with --max-tokens 300" in " ".join(
        run.stdout.split()
    )


def test_choices_are_taken_from_structured_outputs(tmp_path):
    lettered = "Colour?\nA. red\nB. green\nAnswer with one letter."
    lines = (
        batch_line("words", structured_outputs={"choice": ["red", "green"]})
        + batch_line("letters", text=lettered, structured_outputs={"choice": ["A", "B"]})
        + batch_line("both", metadata={"choices": '["x", "y"]'}, structured_outputs={"choice": ["A", "B"]})
    )

    run = imported(tmp_path, lines, name="jobs.jsonl")

    assert run.returncode == 0, run.stderr
    found = pl.read_parquet(tmp_path / "jobs.parquet").select("job_id", "prompt", "choices").rows()
    assert found == [
        ("words", "Colour?", ["red", "green"]),
        ("letters", "Colour?", ["red", "green"]),
        ("both", "Colour?", ["x", "y"]),
    ]


def test_a_pipe_is_refused_instead_of_read_until_it_hangs(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    run = reelabel({}, "manifest", "import", str(tmp_path / "pipe"), str(tmp_path / "jobs.parquet"))

    assert run.returncode == 2
    assert "pipe is a pipe or a device; save its content as a file, and import that." in " ".join(run.stderr.split())


@pytest.mark.parametrize("separator", [";", "\t"])
def test_columns_may_be_separated_as_spreadsheets_do_it(tmp_path, separator):
    text = HEADER.replace(",", separator) + separator.join(("a", "a.mp4", "Red, or green?", "x|y", "1\n"))

    run = imported(tmp_path, "\ufeff" + text)

    assert run.returncode == 0, run.stderr
    assert pl.read_parquet(tmp_path / "jobs.parquet").row(0) == ("a", "a.mp4", "Red, or green?", ["x", "y"], 1.0)


def test_a_file_that_is_not_csv_is_named_with_what_to_do(tmp_path):
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + "a,a.mp4,Größe?,x|y,\n".encode("latin-1"))

    errors = {
        name: reelabel({}, "manifest", "import", str(tmp_path / name), str(tmp_path / "jobs.parquet")).stderr
        for name in ("latin.csv", "")
    }

    assert "it is not a text in UTF-8; save it as one (in spreadsheets: CSV UTF-8)" in errors["latin.csv"]
    assert "is a folder; name a CSV file in it, or say by --layout what it holds" in errors[""]
    assert "jobs.csv is empty; its first line must list the columns" in imported(tmp_path, "").stderr


@pytest.mark.parametrize("target", ["jobs.csv", "other.csv"])
def test_an_import_replaces_no_file_that_is_no_manifest(tmp_path, target):
    for name in ("jobs.csv", "other.csv"):
        (tmp_path / name).write_text(HEADER + "a,a.mp4,Who?,x|y,1\n")

    run = reelabel({}, "manifest", "import", str(tmp_path / "jobs.csv"), str(tmp_path / target))

    assert run.returncode == 2
    assert (
        f"The target {tmp_path / target} must end in .parquet; write the source first, then the target." in run.stderr
    )
    assert (tmp_path / target).read_text().startswith(HEADER)


def test_an_import_does_not_replace_its_source(tmp_path):
    videos = tmp_path / "videos.parquet"
    pl.DataFrame({"video_uri": ["a.mp4"]}).write_parquet(videos)
    options = ("--layout", "parquet", "--prompt", "Who?", "--choices", "x|y")

    run = reelabel({}, "manifest", "import", str(videos), str(videos), *options)

    assert run.returncode == 2
    assert f"{videos} is both source and target; name another target." in run.stderr
    assert pl.read_parquet(videos).columns == ["video_uri"]


def test_a_command_that_needs_no_service_makes_no_home_folder(tmp_path):
    home = {"REELABEL_HOME": str(tmp_path / "home")}
    source, target = tmp_path / "jobs.csv", tmp_path / "jobs.parquet"
    source.write_text(HEADER + "a,a.mp4,Who?,x|y,1\n")

    imported, checked = (
        reelabel(home, "manifest", *arguments)
        for arguments in (("import", str(source), str(target)), ("check", str(target)))
    )

    assert (imported.returncode, checked.returncode) == (0, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.csv", "jobs.parquet"}
