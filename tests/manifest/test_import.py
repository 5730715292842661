import csv
import json

import pytest

from infra.errors import ManifestError
from tasks.manifest.check import check_manifest
from tasks.manifest.importers.csv_rows import import_csv
from tasks.manifest.importers.openai_batch import import_openai_batch


@pytest.fixture
def csv_of(tmp_path):
    """Return a function that imports the text of a CSV file."""

    def read(text):
        (tmp_path / "jobs.csv").write_text(text)
        return import_csv(tmp_path / "jobs.csv")

    return read


@pytest.fixture
def batch_of(tmp_path):
    """Return a function that imports requests, or lines as they are."""

    def read(*lines):
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / "batch.jsonl").write_text("\n".join(texts))
        return import_openai_batch(tmp_path / "batch.jsonl")

    return read


def test_csv_becomes_a_valid_manifest(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,video_uri,prompt,choices,answer,comment\n"
        "1,a.mp4,Day or night?,day|night,day,x\n"
        '2,b.mp4,"Red, or green?","[""red"", ""green""]",,y\n',
    )

    frame = import_csv(path).valid()

    assert check_manifest(frame) == []
    assert frame["choices"].to_list() == [["day", "night"], ["red", "green"]]
    assert frame["job_id"].to_list() == ["1", "2"]
    assert frame["answer"].to_list() == ["day", None]


def test_a_csv_cell_may_contain_an_inline_video_without_raising_the_limit_elsewhere(tmp_path):
    video = "data:video/mp4;base64," + "A" * 200_000
    path = tmp_path / "jobs.csv"
    path.write_text(f'job_id,video_uri,prompt,choices\n1,"{video}",Day?,yes|no\n')
    limit = csv.field_size_limit()

    assert import_csv(path).valid()["video_uri"].to_list() == [video]
    path.write_text("job_id,job_id\n")
    with pytest.raises(ManifestError, match="has duplicate columns"):
        import_csv(path).valid()
    assert csv.field_size_limit() == limit


def test_a_csv_value_that_cannot_be_read_is_named_by_its_line(csv_of):
    with pytest.raises(ManifestError, match=r"start_s 'soon' is not a time; .* 1 row, first line 3 "):
        csv_of("job_id,video_uri,prompt,choices,start_s\na,b,c,x|y,1\na,b,c,x|y,soon\n").valid()


def test_rows_that_cannot_be_read_and_rows_that_break_a_rule_are_told_together(csv_of):
    with pytest.raises(ManifestError) as raised:
        csv_of("job_id,video_uri,prompt,choices\na,b,c,x|y\nb,b,,x|y\nc,b\n").valid()

    assert raised.value.message.splitlines()[1:] == [
        "  - the number of cells differs from that of the header. 1 row, first line 4.",
        "  - prompt is null. 1 row, first line 3 (job_id 'b').",
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param('"two\nlines",b,c,x|y\na,b,c', "the number of cells.*first line 4\\.", id="too few cells"),
        pytest.param("a,b,c,x|y,z", "the number of cells.*first line 2\\.", id="too many cells"),
        pytest.param('a,b,c,"[""x"""', "choices .* is not a JSON list. 1 row, first line 2 ", id="broken list"),
        pytest.param("a,b,c,[1]", "choices .* not a string. 1 row, first line 2 ", id="numbers"),
        pytest.param('a,b,c,"[""\\ud83d"",""y""]"', "choices .* unpaired surrogate.*first line 2 ", id="surrogate"),
        pytest.param(f"a,b,c,{'[' * 100_000}", "choices is nested too deeply.*first line 2 ", id="nested"),
    ],
)
def test_a_csv_row_that_cannot_be_read_is_named_by_its_line(csv_of, row, message):
    with pytest.raises(ManifestError, match=message):
        csv_of(f"job_id,video_uri,prompt,choices\n{row}\n").valid()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            'a,b,c,x|y\n"two\nlines",b,c,x|y\n\nd,"b,c,x|y\n', "the row on line 6 has a quote that is never", id="open"
        ),
        pytest.param('a,"b,c,x|y\nd,"e",c,x|y\n', "the row on line 2 has a wrong quote", id="closed by the next"),
    ],
)
def test_a_quote_that_is_not_closed_is_named_by_its_line(tmp_path, text, message):
    path = tmp_path / "jobs.csv"
    path.write_text(f"job_id,video_uri,prompt,choices\n{text}")

    with pytest.raises(ManifestError, match=f"Cannot read {path} as CSV: {message}"):
        import_csv(path)
    path.write_text('job_id,"video_uri\n')
    with pytest.raises(ManifestError, match="the row on line 1 has a quote that is never closed"):
        import_csv(path)


def test_empty_rows_of_a_csv_are_skipped(csv_of):
    found = csv_of("job_id,video_uri,prompt,choices\n,,,\na,b,c,x|y\n\n  , ,,\n,\n,,,,,\nb,b,c,x|y\n")

    assert found.valid()["job_id"].to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("separator", "text", "seconds"),
    [
        (",", "1:30", 90.0),
        (",", "01:02:03.5", 3723.5),
        (",", "90:00", 5400.0),
        (",", '"00:01:02,500"', 62.5),
        (",", "12.5", 12.5),
        (";", "12,5", 12.5),
        (";", "1:02,5", 62.5),
        (",", '"12,5"', None),
        (",", "1:59:00", 7140.0),
        (",", "1:60", None),
        (",", "1:60:00", None),
        (",", "1:75:00", None),
        (",", "9" * 400 + ":00", None),
        (";", "1.234,5", None),
    ],
)
def test_times_are_read_as_people_and_spreadsheets_write_them(tmp_path, separator, text, seconds):
    path = tmp_path / "jobs.csv"
    path.write_text(separator.join(["job_id", "video_uri", "prompt", "choices", "end_s\na", "b", "c", "x|y", text]))

    if seconds is None:
        with pytest.raises(ManifestError, match=r"end_s '.*is not a time; write seconds, such as 90\.5, or 1:30\.5"):
            import_csv(path).valid()
    else:
        assert import_csv(path).valid()["end_s"].to_list() == [seconds]


def request(**changed):
    text = "What colour is it?\nA. red\nB) green\nAnswer with one letter."
    content = [{"type": "video_url", "video_url": {"url": "s3://b/v.mp4"}}, {"type": "text", "text": text}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    return {"custom_id": "job-1", "body": {"model": "m", "messages": messages}} | changed


def test_openai_batches_become_a_valid_manifest(tmp_path):
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps(request()) + "\n\n" + json.dumps(request(custom_id="job-2")) + "\n")

    frame = import_openai_batch(path).valid()

    assert check_manifest(frame) == []
    assert frame.row(0, named=True) == {
        "job_id": "job-1",
        "video_uri": "s3://b/v.mp4",
        "prompt": "What colour is it?",
        "choices": ["red", "green"],
        "system_prompt": "Be brief.",
    }


def test_a_batch_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps(request(custom_id=7)), encoding="utf-8-sig")

    assert import_openai_batch(path).valid()["job_id"].to_list() == ["7"]


def test_choices_may_be_in_the_metadata(tmp_path):
    body = request()["body"] | {"metadata": {"choices": '["red", "green"]'}}
    body["messages"][1]["content"][1]["text"] = "What colour\u2028is it?"
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps(request(body=body), ensure_ascii=False))

    frame = import_openai_batch(path).valid()

    assert frame.select("prompt", "choices").row(0) == ("What colour\u2028is it?", ["red", "green"])


@pytest.mark.parametrize(
    ("listed", "choices", "is_whole"),
    [
        (["A", "B"], ["red", "green"], False),
        (["red", "green"], ["red", "green"], True),
        (["B", "A"], ["B", "A"], True),
        (["A", "B", "C"], ["A", "B", "C"], True),
    ],
)
def test_listed_letters_stand_for_the_lines_of_the_question_and_other_choices_for_themselves(
    batch_of, listed, choices, is_whole
):
    line = request()
    text = line["body"]["messages"][1]["content"][1]["text"]

    row = batch_of(request(body=line["body"] | {"metadata": {"choices": listed}})).valid().row(0, named=True)

    assert (row["choices"], row["prompt"]) == (choices, text if is_whole else "What colour is it?")


def words(custom_id, text, **body):
    content = [{"type": "video_url", "video_url": {"url": "s3://b/v.mp4"}}, {"type": "text", "text": text}]
    return {"custom_id": custom_id, "body": {"messages": [{"role": "user", "content": content}]} | body}


def test_requests_without_choices_are_answered_in_words_or_by_their_schema(batch_of):
    schema = {"type": "object", "properties": {"farbe": {"enum": ["gr\u00fcn"]}}}
    by_schema = {"type": "json_schema", "json_schema": {"name": "facts", "strict": True, "schema": schema}}
    lines = "Describe:\nA. what is seen\nB. what is heard"
    requests = [
        request(),
        words("free", "Describe it.\nA. first", max_tokens=300),
        words("schema", lines, response_format=by_schema, max_completion_tokens=900, max_tokens=7),
        words("object", "Facts?", response_format={"type": "json_object"}),
        words("text", "What?", response_format={"type": "text"}, max_tokens=1),
        words("vllm", "Facts?", structured_outputs={"json": {"type": "string"}}),
    ]

    found = batch_of(*requests)

    rows = {row["job_id"]: row for row in found.valid().iter_rows(named=True)}
    assert [row["choices"] for row in rows.values()] == [["red", "green"], *[None] * 5]
    assert {name: row["prompt"] for name, row in rows.items() if name in {"free", "schema"}} == {
        "free": "Describe it.\nA. first",
        "schema": lines,
    }
    schemas = [row["schema"] and json.loads(row["schema"]) for row in rows.values()]
    assert schemas == [None, None, schema, {"type": "object"}, None, {"type": "string"}]
    [note] = found.notes
    assert note == (
        "5 requests without choices will be answered in words; run with --max-tokens 900, their greatest max_tokens."
    )


def test_bounds_of_answers_are_read_as_vllm_has_them_now_and_had_them_before(batch_of):
    lines = "What?\nA. a cat\nB. a dog"
    requests = [
        words("choice", "What?", guided_choice=["a", "b"], guided_decoding_backend="auto"),
        words("json", "What?", guided_json={"type": "string"}, guided_decoding_backend="auto"),
        words("any json", lines, structured_outputs={"json": {}, "choice": None}),
        words("letters", lines, structured_outputs={"regex": "[AB]"}),
    ]

    rows = batch_of(*requests).valid()

    assert rows["choices"].to_list() == [["a", "b"], None, None, ["a cat", "a dog"]]
    assert rows["schema"].to_list() == [None, '{"type": "string"}', "{}", None]


def test_words_of_requests_without_a_bound_have_that_of_runs(batch_of):
    [note] = batch_of(words("free", "What?")).notes
    assert note == (
        "1 request without choices will be answered in words, of at most 64 tokens each unless the run has another "
        "--max-tokens."
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            words("a", "What?", response_format={"type": "xml"}),
            "response_format 'xml' is none of text, json_object and json_schema.*first line 1 ",
            id="another format",
        ),
        pytest.param(
            words("a", "What?", response_format={"type": "json_schema"}),
            "'json_schema' is missing from the request",
            id="format without a schema",
        ),
        pytest.param(
            words("a", "What?", response_format={"type": "json_schema", "json_schema": {"schema": 1}}),
            "schema is not a JSON object",
            id="no schema",
        ),
        pytest.param(
            words("a", "What?", response_format={"type": "json_schema", "json_schema": {"schema": None}}),
            "schema is not a JSON object",
            id="null as schema",
        ),
        *(
            pytest.param(
                words("a", "What?", structured_outputs={name: value}, guided_choice=None),
                f"structured_outputs.{name} .* is neither choices nor a JSON schema.*first line 1 ",
                id=name,
            )
            for name, value in (("regex", "[ab]"), ("grammar", "root ::= 'a'"), ("json_object", True), ("choice", []))
        ),
        *(
            pytest.param(
                words("a", "What?", **{name: "[ab]"}),
                f"{name} '.ab.' is neither choices nor a JSON schema.*first line 1 ",
                id=name,
            )
            for name in ("guided_regex", "guided_grammar")
        ),
        pytest.param(words("a", "What?", max_tokens="many"), "max_tokens 'many' is no positive", id="no bound"),
        pytest.param("{", "not JSON.*first line 1\\.", id="not JSON"),
        pytest.param("[1]", "not a request.*first line 1\\.", id="not a request"),
        pytest.param({"custom_id": "a"}, "'body' is missing from the request.*first line 1 ", id="without a body"),
        pytest.param(
            {"custom_id": "a", "body": {"messages": [{"role": "user", "content": "A. x\nB. y"}]}},
            "expected a video, found none",
            id="without a video",
        ),
        pytest.param(request(custom_id=None), "custom_id None is not a string", id="null as id"),
        pytest.param(request(custom_id=["a"]), "custom_id .* is not a string", id="list as id"),
        pytest.param(
            request(custom_id="\ud83d"),
            "job_id contains an unpaired surrogate.*first line 1 ",
            id="surrogate in an id",
        ),
        pytest.param(
            request(body=request()["body"] | {"metadata": {"choices": ["\ud83d", "b"]}}),
            "choices contains an unpaired surrogate.*first line 1 ",
            id="surrogate in a choice",
        ),
        pytest.param('{"custom_id": ' + "[" * 200_000, "the JSON is nested too deeply.*first line 1\\.", id="nested"),
    ],
)
def test_a_request_that_cannot_be_read_is_named_by_its_line(batch_of, line, message):
    with pytest.raises(ManifestError, match=message):
        batch_of(line).valid()


def test_an_invalid_csv_header_is_explained(tmp_path):
    path = tmp_path / "jobs.csv"

    path.write_text("job_id,prompt,frage\na,b,c\n")
    with pytest.raises(ManifestError, match="lacks the column video_uri; its first line is: job_id, prompt, frage"):
        import_csv(path).valid()

    path.write_text("job_id,job_id\na,b\n")
    with pytest.raises(ManifestError, match="has duplicate columns: job_id"):
        import_csv(path).valid()


def test_unknown_columns_are_named(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,note,video_uri,prompt,choices\na,b,c,d,e|f\n")

    [note] = import_csv(path).notes
    assert note.startswith(f"Dropped 1 column of {path}: note; a manifest has job_id, video_uri, prompt, choices, ")
    assert import_csv(path).valid().columns == ["job_id", "video_uri", "prompt", "choices"]


def test_columns_without_a_name_are_dropped(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,video_uri,prompt,,\na,b,c,,\n")

    found = import_csv(path)

    assert found.valid().rows() == [("a", "b", "c")]
    assert found.notes[0].startswith(f"Dropped 2 columns of {path}: (unnamed), (unnamed); a manifest has ")


def test_a_request_whose_id_cannot_be_written_is_rejected_beside_the_others(batch_of):
    rows, rejects = batch_of(request(), request(custom_id="\ud83d")).divided()

    assert len(rows) == 1
    assert rejects.select("place", "job_id").rows() == [("line 2", r"\ud83d")]
