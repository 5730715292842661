import json
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from infra.errors import ManifestError
from tasks.manifest.check import check_manifest
from tasks.manifest.importers.benchmarks import read_mvbench, read_nextqa, read_streamingbench, read_videomme
from tasks.manifest.importers.csv_rows import read_mapped
from tasks.manifest.importers.imported import QuestionFiles, read_columns, strip_letters

NEXTQA = (
    "video,frame_count,width,height,question,answer,qid,type,a0,a1,a2,a3,a4\n"
    '4010069381,369,640,480,"how do the two man play, instrument",0,6,CH,roll,tap,strum,hit,pat\n'
    "6238938227,900,640,480,what did she do after,4,12,TN,sit,stand,walk,jump,run\n"
)


def valid(read, source):
    return read(source).valid()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nextqa_is_read_with_its_video_map(tmp_path):
    questions = write(tmp_path / "val.csv", NEXTQA)
    paths = {"4010069381": "1164/4010069381", "6238938227": "0000/6238938227"}
    video_map = write(tmp_path / "map_vid_vidorID.json", json.dumps(paths))

    frame = valid(read_nextqa, QuestionFiles(path=questions, videos="s3://b/NExTVideo/", video_map=video_map))

    assert check_manifest(frame) == []
    assert frame["job_id"].to_list() == ["4010069381_6", "6238938227_12"]
    assert frame["video_uri"][0] == "s3://b/NExTVideo/1164/4010069381.mp4"
    assert frame["prompt"][0] == "how do the two man play, instrument"
    assert frame["answer"].to_list() == ["roll", "run"]
    assert frame.select("task", "subtask").rows() == [("causal", "CH"), ("temporal", "TN")]


def test_nextqa_as_parquet_makes_the_same_jobs(tmp_path):
    text = write(tmp_path / "val.csv", NEXTQA)
    pl.read_csv(text).write_parquet(tmp_path / "val.parquet")  # with numbers for ids, as it is published
    pl.read_csv(text).drop("a4").write_parquet(tmp_path / "other.parquet")

    frame = valid(read_nextqa, QuestionFiles(path=tmp_path / "val.parquet", videos="/v"))

    assert frame.equals(valid(read_nextqa, QuestionFiles(path=text, videos="/v")))
    with pytest.raises(ManifestError, match=r"other\.parquet lacks the column a4 required for NExT-QA"):
        valid(read_nextqa, QuestionFiles(path=tmp_path / "other.parquet"))


@pytest.mark.parametrize(
    ("text", "video_map_content", "message"),
    [
        (
            "video,question\n1,what\n",
            {},
            "lacks the columns answer, qid, type, a0, a1, a2, a3, a4 required for NExT-QA",
        ),
        (NEXTQA, {"1": "2"}, "has no entry for video '4010069381'. 1 row, first line 2 .job_id '4010069381_6'"),
        (NEXTQA, ["1"], "must contain a JSON object"),
        (NEXTQA.replace(",0,6,", ",5,6,"), {}, "answer 5 is out of range for 5 choices"),
        (NEXTQA.replace(",0,6,", ",roll,6,"), {}, "the answer 'roll' is not a number from 0 to 4"),
    ],
)
def test_anything_but_nextqa_is_refused(tmp_path, text, video_map_content, message):
    video_map = write(tmp_path / "map.json", json.dumps(video_map_content)) if video_map_content else None

    with pytest.raises(ManifestError, match=message):
        valid(read_nextqa, QuestionFiles(path=write(tmp_path / "val.csv", text), video_map=video_map))


def mvbench_row(**changed):
    row = {"video": "S0.mp4", "question": "What happened?", "candidates": ["a cup", "a door"], "answer": "a door"}
    return row | changed


def test_mvbench_is_read_from_its_folder_including_segments(tmp_path):
    folder = tmp_path / "json"
    write(folder / "action_sequence_20250131.json", json.dumps([mvbench_row(start=1.5, end=9.0)]))
    write(folder / "scene_transition.json", json.dumps([mvbench_row(), mvbench_row(video="T.mp4")]))
    write(folder / "episodic_reasoning.json", json.dumps([mvbench_row(video="frames")]))

    frame = valid(read_mvbench, QuestionFiles(path=folder, videos=str(tmp_path / "video")))

    assert check_manifest(frame) == []
    assert frame["job_id"].to_list() == ["action_sequence_0", "scene_transition_0", "scene_transition_1"]
    assert frame["video_uri"][0] == f"{tmp_path}/video/star/Charades_v1_480/S0.mp4"
    assert frame.select("start_s", "end_s").rows() == [(1.5, 9.0), (None, None), (None, None)]
    assert frame["subtask"].to_list() == ["action_sequence", "scene_transition", "scene_transition"]


@pytest.mark.parametrize(
    ("folder", "uri"),
    [
        ("circus", "/v/circus/S0.mp4"),
        ("", "/v/S0.mp4"),
        ("/mnt/circus", "/mnt/circus/S0.mp4"),
        ("s3://b/circus", "s3://b/circus/S0.mp4"),
    ],
)
def test_a_map_locates_the_videos_of_another_subtask(tmp_path, folder, uri):
    questions = write(tmp_path / "juggling.json", json.dumps([mvbench_row()]))
    with pytest.raises(ManifestError, match=r"juggling\.json: the video folder of subtask juggling is unknown"):
        valid(read_mvbench, QuestionFiles(path=questions))

    video_map = write(tmp_path / "map.json", json.dumps({"juggling": folder}))

    assert valid(read_mvbench, QuestionFiles(path=questions, videos="/v", video_map=video_map))["video_uri"][0] == uri


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"video": 1}', "must contain a JSON list of questions"),
        (
            '[{"video": "a", "question": "b"}]',
            r"it lacks candidates, answer. 1 row, first action_count\.json, question 0",
        ),
        ("[", "Cannot read .* as JSON"),
    ],
)
def test_anything_but_mvbench_is_refused(tmp_path, text, message):
    with pytest.raises(ManifestError, match=message):
        valid(read_mvbench, QuestionFiles(path=write(tmp_path / "action_count.json", text)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": "0:05"}, "start '0:05' is not a number of seconds"),
        ({"start": 10**400}, "int too large to convert to float"),
        ({"candidates": "a door"}, "candidates 'a door' is not a list"),
        ({"candidates": ["a door", 1]}, "candidate 1 1 is not a valid string"),
        ({"video": None}, "video None is not a valid string"),
        ({"question": "\ud83d"}, r"question '\\ud83d' is not a valid string"),
    ],
)
def test_mvbench_values_of_the_wrong_type_are_named(tmp_path, changed, message):
    rows = [mvbench_row(answer=None, start=0, end=2.5), mvbench_row(**changed)]
    path = write(tmp_path / "action_count.json", json.dumps(rows))

    with pytest.raises(ManifestError, match=rf"{message}. 1 row, first action_count\.json, question 1"):
        valid(read_mvbench, QuestionFiles(path=path))

    path.write_text(json.dumps(rows[:1]))
    assert valid(read_mvbench, QuestionFiles(path=path)).select("answer", "start_s", "end_s").row(0) == (
        None,
        0.0,
        2.5,
    )


def test_deeply_nested_json_is_refused(tmp_path):
    with pytest.raises(ManifestError, match=r"Cannot read .* as JSON: it is nested too deeply"):
        valid(read_mvbench, QuestionFiles(path=write(tmp_path / "action_count.json", "[" * 200_000)))


def test_a_folder_without_subtasks_is_refused(tmp_path):
    with pytest.raises(ManifestError, match="contains no JSON file"):
        valid(read_mvbench, QuestionFiles(path=tmp_path))


def videomme(path, **changed):
    row = {
        "video_id": "001",
        "duration": "short",
        "domain": "Knowledge",
        "sub_category": "Humanity & History",
        "url": "https://www.youtube.com/watch?v=fFjv93ACGo8",
        "videoID": "fFjv93ACGo8",
        "question_id": "001-1",
        "task_type": "Counting Problem",
        "question": "How many?",
        "options": ["A. Apples.", "B. Candles.", "C. Berries.", "D. The three kinds are of the same number."],
        "answer": "C",
    }
    pl.DataFrame([row | changed]).write_parquet(path)
    return path


def test_videomme_is_read_without_its_letters(tmp_path):
    frame = valid(read_videomme, QuestionFiles(path=videomme(tmp_path / "test.parquet"), videos="/videos"))

    assert check_manifest(frame) == []
    assert frame["video_uri"][0] == "/videos/fFjv93ACGo8.mp4"
    assert frame["choices"][0].to_list()[:2] == ["Apples.", "Candles."]
    assert frame["answer"][0] == "Berries."
    assert frame.select("task", "subtask").row(0) == ("Counting Problem", "short")


@pytest.mark.parametrize(
    ("choices", "stripped"),
    [
        (["A. red", "(B) green", "C: blue"], ["red", "green", "blue"]),
        (["U.S.", "U.K."], ["U.S.", "U.K."]),
        (["J. Smith", "B. Jones"], ["J. Smith", "B. Jones"]),
        (["A. Smith", "C. Jones"], ["A. Smith", "C. Jones"]),
        (["A. red", "green"], ["A. red", "green"]),
        ([f"{letter}. x" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZA"],) * 2,
    ],
)
def test_letters_are_removed_from_choices_only_if_they_number_them(choices, stripped):
    assert strip_letters(choices) == stripped


def test_a_text_that_is_not_utf_8_is_damage(tmp_path):
    path = videomme(tmp_path / "test.parquet", question="What is red?")
    path.write_bytes(path.read_bytes().replace(b"What is red?", b"What is r\xffd?"))

    with pytest.raises(ManifestError, match=r"Cannot read .* as Parquet: .*UTF8"):
        valid(read_videomme, QuestionFiles(path=path))


def test_a_videomme_question_may_have_no_known_answer(tmp_path):
    frame = valid(read_videomme, QuestionFiles(path=videomme(tmp_path / "test.parquet", answer=None)))

    assert check_manifest(frame) == []
    assert frame["answer"].to_list() == [None]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"options": None}, r"options is null, or contains a null. 1 row, first row 0 .job_id .001-1"),
        ({"options": ["A. x", None]}, r"options is null, or contains a null. 1 row, first row 0 .job_id .001-1"),
        ({"options": "A. x"}, r"test\.parquet has columns whose types differ from Video-MME's: casting"),
        ({"answer": 3}, "the answer '3' is not the letter of one of its 4 choices. 1 row, first row 0 .job_id .001-1"),
    ],
)
def test_videomme_values_of_the_wrong_type_are_named(tmp_path, changed, message):
    with pytest.raises(ManifestError, match=message):
        valid(read_videomme, QuestionFiles(path=videomme(tmp_path / "test.parquet", **changed)))


def test_a_small_benchmark_of_long_texts_is_refused_by_the_size_of_a_page_or_of_all(tmp_path):
    long = videomme(tmp_path / "long.parquet", question="x" * 150_000_000)
    many = pa.DictionaryArray.from_arrays(np.zeros(4000, np.int32), ["x" * 100_000])
    shared = BytesIO()
    parquet.write_table(pa.table({"name": many}), shared, compression="zstd", store_schema=False)

    with pytest.raises(ManifestError, match="has a page of 143 MiB in its column question, more than 128; shorten"):
        read_videomme(QuestionFiles(path=long))
    with pytest.raises(ManifestError, match="data has more than 256 MiB of LeRobot 3's columns; split it"):
        read_columns(shared, ["name"], uri="data", layout="LeRobot 3")

    assert len(shared.getvalue()) < 100_000


def test_anything_but_videomme_is_refused(tmp_path):
    pl.DataFrame({"question": ["?"]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(
        ManifestError, match="lacks the columns videoID, question_id, task_type, duration, options, answer"
    ):
        valid(read_videomme, QuestionFiles(path=tmp_path / "other.parquet"))
    with pytest.raises(ManifestError, match="the answer 'Z' is not the letter of one of its 4 choices"):
        valid(read_videomme, QuestionFiles(path=videomme(tmp_path / "test.parquet", answer="Z")))


MAPPING = {
    "job_id": "vid+n",
    "video_uri": "file",
    "prompt": "q",
    "choices": "c1+c2+c3",
    "answer": "right",
    "start_s": "from",
}


@pytest.mark.parametrize("right", ["2", "C", "c", "blue", "(C) blue"])
def test_any_csv_can_be_read_with_a_mapping(tmp_path, right):
    path = write(
        tmp_path / "any.csv",
        f"vid,n,file,q,c1,c2,c3,right,from,other\nv,7,a.mp4,Colour?,red,green,blue,{right},1.5,x\n",
    )

    frame = valid(read_mapped, QuestionFiles(path=path, videos="s3://b/v", columns=MAPPING))

    assert check_manifest(frame) == []
    assert frame.to_dicts() == [
        {
            "job_id": "v_7",
            "video_uri": "s3://b/v/a.mp4",
            "prompt": "Colour?",
            "choices": ["red", "green", "blue"],
            "answer": "blue",
            "start_s": 1.5,
        }
    ]


def answered(tmp_path, *rows):
    """Read answers of a table, each after its choices."""
    lines = "".join(f"{number},{','.join(row)}\n" for number, row in enumerate(rows))
    path = write(tmp_path / "any.csv", f"n,c1,c2,c3,c4,right\n{lines}")
    columns = {"job_id": "n", "video_uri": "n", "prompt": "n", "choices": "c1+c2+c3+c4", "answer": "right"}
    return valid(read_mapped, QuestionFiles(path=path, columns=columns))["answer"].to_list()


def test_answers_in_a_column_are_all_texts_all_letters_or_all_numbers(tmp_path):
    counting, animals = ("5", "2", "3", "4"), ("cat", "dog", "cow", "pig")
    grades = ("B", "A", "D", "C")

    assert answered(tmp_path, (*counting, "2"), (*animals, "0")) == ["3", "cat"]
    assert answered(tmp_path, (*counting, "2"), (*animals, "cow")) == ["2", "cow"]
    assert answered(tmp_path, (*counting, "2"), (*counting, "5")) == ["2", "5"]
    assert answered(tmp_path, (*grades, "A"), (*animals, "D"), (*animals, "")) == ["B", "pig", None]
    assert answered(tmp_path, (*grades, "A"), (*animals, "pig")) == ["A", "pig"]
    assert answered(tmp_path, ("0", "1", "2", "3", "2")) == ["2"]


@pytest.mark.parametrize(
    ("choices", "answer", "message"),
    [
        (
            ("5", "2", "3", "4"),
            "2",
            "the answer '2' is ambiguous: it is a choice, and the number of another, '3'; .* letter.*first line 2",
        ),
        (
            ("B", "A", "D", "C"),
            "A",
            "the answer 'A' is ambiguous: it is a choice, and the letter of another, 'B'; .* number",
        ),
        (("cat", "dog", "cow", "pig"), "4", "the answer '4' is not a choice"),
        (
            ("cat", "dog", "cow", "pig"),
            "\N{LATIN SMALL LETTER SHARP S}",
            "the answer '\xdf' is not a choice",
        ),
    ],
)
def test_an_answer_that_names_two_choices_or_none_is_refused(tmp_path, choices, answer, message):
    with pytest.raises(ManifestError, match=message):
        answered(tmp_path, (*choices, answer))


def test_a_video_given_by_its_full_uri_keeps_it(tmp_path):
    columns = {"job_id": "n", "video_uri": "file", "prompt": "q", "choices": "c"}
    uris = ["s3://bucket/a.mp4", "https://h/c.mp4", "/data/b.mp4", "day/d.mp4"]
    lines = "".join(f"{number},{uri},Who?,x|y\n" for number, uri in enumerate(uris))
    path = write(tmp_path / "any.csv", f"n,file,q,c\n{lines}")

    frame = valid(read_mapped, QuestionFiles(path=path, videos="/folder", columns=columns))

    assert frame["video_uri"].to_list() == [*uris[:3], "/folder/day/d.mp4"]


def test_choices_may_be_in_one_column_and_fewer_than_the_columns(tmp_path):
    path = write(tmp_path / "any.csv", "vid,n,file,q,c1,c2,c3\nv,7,a.mp4,Colour?,A. red,B. green,\n")
    columns = {name: MAPPING[name] for name in ("job_id", "video_uri", "prompt", "choices")}
    assert valid(read_mapped, QuestionFiles(path=path, columns=columns))["choices"].to_list() == [["red", "green"]]

    barred = write(tmp_path / "barred.csv", "vid,n,file,q,c1\nv,7,a.mp4,Colour?,red | green\n")
    frame = valid(read_mapped, QuestionFiles(path=barred, columns=columns | {"choices": "c1"}))
    assert frame["choices"].to_list() == [["red", "green"]]


@pytest.mark.parametrize("empty", ["", '""', " "])
def test_only_the_last_choices_may_be_empty_so_no_answer_shifts(tmp_path, empty):
    assert answered(tmp_path, ("cat", "dog", "cow", empty, "2")) == ["cow"]

    with pytest.raises(ManifestError, match="column c2 is empty, but a later choice is not"):
        answered(tmp_path, ("cat", empty, "dog", "cow", "2"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"job_id": "vid"}, "are mapped to video_uri, prompt, choices; add video_uri=COLUMN"),
        (MAPPING | {"colour": "q"}, "Unknown manifest columns: colour"),
        (MAPPING | {"prompt": "question"}, "lacks the column question"),
        (MAPPING | {"start_s": "q"}, "start_s 'Colour\\?' is not a time"),
        (MAPPING | {"answer": "file"}, "'a.mp4' is not a choice, or the letter or number"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(tmp_path, columns, message):
    text = "vid,n,file,q,c1,c2,c3,right,from\nv,7,a.mp4,Colour?,red,green,blue,A,0\n"

    with pytest.raises(ManifestError, match=message):
        valid(read_mapped, QuestionFiles(path=write(tmp_path / "any.csv", text), columns=columns))


def streamingbench(path, **changed):
    """Write questions at three times about two videos, as they are published; one has no choices."""
    question = {
        "task_type": "Object Perception",
        "question": "What is on the table now?",
        "time_stamp": "00:00:50",
        "answer": "B",
        "options": ["A. A cup.", "B.A door."],
        "required_ability": "working memory",
    } | changed
    proactive = {"task_type": "Proactive Output", "question": "Say when it opens.", "time_stamp": "00:00:10"}
    entry = {"time": "[0:00:00 - 0:01:00]", "video_categories": "cards"}
    first = entry | {"video_path": "./videos/sample_2.mp4", "questions": [question]}
    later = first | {"questions": [question | {"time_stamp": "01:01:52", "answer": "A"}, proactive]}
    other = first | {"video_path": "./videos/sample_3.mp4"}
    return write(path, json.dumps([first, later, other]))


def test_streamingbench_questions_are_about_the_video_up_to_their_times(tmp_path):
    path = streamingbench(tmp_path / "questions_real.json")

    found = read_streamingbench(QuestionFiles(path=path, videos="s3://b/real"))

    frame = found.valid()
    assert frame["job_id"].to_list() == ["sample_2_0", "sample_2_1", "sample_3_0"]
    assert frame["video_uri"].to_list() == [f"s3://b/real/videos/sample_{number}.mp4" for number in (2, 2, 3)]
    assert frame["end_s"].to_list() == [50.0, 3712.0, 50.0]
    assert frame["choices"][0].to_list() == ["A cup.", "A door."]
    assert frame["answer"].to_list() == ["A door.", "A cup.", "A door."]
    assert frame.select("task", "subtask").row(0) == ("Object Perception", "working memory")
    assert found.notes == [f"Left out 1 question of {path} without choices."]


def test_sequential_questions_of_streamingbench_are_grouped_by_video(tmp_path):
    path = streamingbench(tmp_path / "questions_real.json")
    first, later, other = json.loads(path.read_text())
    grouped = write(tmp_path / "questions_sqa.json", json.dumps([[first, later], [other]]))

    frame, alone = (valid(read_streamingbench, QuestionFiles(path=each, videos="s3://b")) for each in (grouped, path))

    assert frame.equals(alone)


@pytest.mark.parametrize(("published", "end_s"), [("00:24", 24.0), ("00:00:8", 8.0), ("0:02:40", 160.0)])
def test_streamingbench_times_are_read_as_they_are_published(tmp_path, published, end_s):
    path = streamingbench(tmp_path / "questions_real.json", time_stamp=published)

    assert valid(read_streamingbench, QuestionFiles(path=path, videos="s3://b"))["end_s"][0] == end_s


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"time_stamp": "00:12450"}, "time_stamp '00:12450' is not a time"),
        ({"answer": "C"}, "the answer 'C' is not the letter of one of its 2 choices"),
        ({"options": "A. A cup."}, "options 'A. A cup.' is not a list of texts"),
        ({"question": 7}, "question 7 is not a valid string"),
        ({"required_ability": []}, r"required_ability \[\] is not a valid string"),
    ],
)
def test_anything_but_streamingbench_is_refused(tmp_path, changed, message):
    with pytest.raises(ManifestError, match=message):
        valid(read_streamingbench, QuestionFiles(path=streamingbench(tmp_path / "questions.json", **changed)))


def test_a_missing_file_is_named():
    for read in (read_nextqa, read_videomme, read_mvbench, read_streamingbench):
        with pytest.raises(ManifestError, match="gone"):
            valid(read, QuestionFiles(path=Path("/gone")))


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="Nowhere/Land"), pa.decimal256(60, 2)])
def test_a_benchmark_with_a_type_that_cannot_be_read_is_refused(tmp_path, kind):
    table = parquet.read_table(videomme(tmp_path / "test.parquet"))
    odd = table.set_column(table.column_names.index("duration"), "duration", pa.nulls(len(table), kind))
    parquet.write_table(odd, tmp_path / "odd.parquet")

    with pytest.raises(ManifestError, match=r"odd\.parquet has a column of Video-MME whose type cannot be read\.$"):
        valid(read_videomme, QuestionFiles(path=tmp_path / "odd.parquet"))
