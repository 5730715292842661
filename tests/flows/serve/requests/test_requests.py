"""Single requests to a real service with the tiny models, against what runs say of the same videos."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest
from sqlalchemy import select

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import DESCRIPTION, DESCRIPTION_CHUNK, RESULT
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import make_demo
from tests.command_line import reelabel as run_command
from tests.flows.serve.served import serving
from tests.wait import until

pytestmark = pytest.mark.system
CLIPS = 24
SCHEMA = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}


@pytest.fixture(scope="module")
def environment(own_environment, tmp_path_factory):
    bank = tmp_path_factory.mktemp("bank") / "shapes.txt"
    bank.write_text("\n".join(SHAPE_BANK))
    described = {"REELABEL_DESCRIBE_TAGS": str(bank), "REELABEL_DESCRIBE_CHUNK_S": "2"}
    return own_environment | described | {"REELABEL_SERVE_MAX_REQUESTS": "4", "REELABEL_SERVE_IDLE_TIMEOUT_S": "2"}


@pytest.fixture(scope="module")
def jobs(own_services, tmp_path_factory):
    """The demo's jobs, on S3; and the folder of its clips."""
    folder, root = tmp_path_factory.mktemp("demo"), f"{own_services.store.uri}/videos"
    rows = make_demo(folder, seed=7, clips=CLIPS, uri_prefix=root)
    objects = ObjectStore(own_services.store)
    for path in folder.rglob("*"):
        if path.is_file():
            objects.replace(f"{root}/{path.relative_to(folder)}", path.read_bytes())
    words = rows.head(4).select("video_uri", job_id=pl.format("{}-words", "job_id"), prompt=pl.lit("Describe it."))
    facts = rows.head(4).select("video_uri", job_id=pl.format("{}-facts", "job_id"), prompt=pl.lit("Which colour?"))
    facts = facts.with_columns(schema=pl.lit(json.dumps(SCHEMA)))
    pl.concat([rows, words, facts], how="diagonal").write_parquet(folder / "jobs.parquet")
    return rows, folder


@pytest.fixture(scope="module")
def labelled(environment, jobs, engine):
    """The rows of a run, by job id."""
    _, folder = jobs
    run = run_command(environment, "classify", str(folder / "jobs.parquet"), "--dataset", "d")
    assert run.returncode == 0, run.stderr
    with engine.connect() as connection:
        return {row["job_id"]: row for row in connection.execute(select(RESULT)).mappings()}


@pytest.fixture(scope="module")
def described(environment, jobs, engine, labelled):  # noqa: ARG001 - one engine at a time
    """The rows of descriptions, and of their chunks, by job id."""
    rows, folder = jobs
    one = rows.unique("video_uri", keep="first", maintain_order=True).select("job_id", "video_uri")
    one.write_parquet(folder / "videos.parquet")
    run = run_command(environment, "describe", str(folder / "videos.parquet"), "--dataset", "v")
    assert run.returncode == 0, run.stderr
    with engine.connect() as connection:
        chunks = connection.execute(select(DESCRIPTION_CHUNK).order_by(DESCRIPTION_CHUNK.c.chunk)).mappings().all()
        return {
            row["job_id"]: (row, [chunk for chunk in chunks if chunk["job_id"] == row["job_id"]])
            for row in connection.execute(select(DESCRIPTION)).mappings()
        }


@pytest.fixture(scope="module")
def served(environment, described):  # noqa: ARG001 - one engine at a time
    with serving(environment) as running:
        yield running


@pytest.fixture(scope="module")
def client(served):
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


def body_of(row, **more):
    return {"video_uri": row["video_uri"], "prompt": row["prompt"], "choices": list(row["choices"])} | more


def test_a_request_gets_the_label_and_the_probabilities_of_the_run(client, jobs, labelled):
    rows = jobs[0].to_dicts()
    for row in rows[:12]:
        answer = client.post("/v1/classify", json=body_of(row))

        assert answer.status_code == 200, answer.text
        found, expected = answer.json(), labelled[row["job_id"]]
        assert found["label"] == expected["label"]
        assert found["probabilities"] == pytest.approx(list(expected["probabilities"]), abs=1e-4)
        for name in ("choice_index", "sampler", "frames_used", "source_fingerprint", "prompt_tokens", "spec_id"):
            assert found[name] == expected[name], name


def test_a_request_without_choices_gets_the_words_and_the_json_of_the_run(client, jobs, labelled):
    for row in jobs[0].head(4).to_dicts():
        video = {"video_uri": row["video_uri"]}
        in_words = client.post("/v1/classify", json=video | {"prompt": "Describe it."})
        in_json = client.post("/v1/classify", json=video | {"prompt": "Which colour?", "schema": SCHEMA})

        assert (in_words.status_code, in_json.status_code) == (200, 200), in_words.text + in_json.text
        for kind, answer in (("words", in_words.json()), ("facts", in_json.json())):
            expected = labelled[f"{row['job_id']}-{kind}"]
            for name in ("label", "text", "data", "finish_reason", "output_tokens", "prompt_tokens", "spec_id"):
                assert answer[name] == expected[name], name
    short = client.post("/v1/classify", json=video | {"prompt": "Describe it.", "max_tokens": 1}).json()
    assert (short["output_tokens"], short["finish_reason"]) == (1, "length")


def test_words_that_nobody_waits_for_are_not_written_to_their_end(client, jobs):
    endless = {"schema": {"type": "string", "minLength": 20_000}, "max_tokens": 4096}
    long = {"video_uri": jobs[0]["video_uri"][0], "prompt": "Write."} | endless
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/classify", json=long, timeout=1)
    began_s = time.monotonic()
    until(lambda: client.get("/health").json()["requests"] == 0, 30)
    assert time.monotonic() - began_s < 3
    assert 'outcome="cancelled"' in client.get("/metrics").text
    after = client.post("/v1/classify", json=body_of(jobs[0].row(0, named=True))).json()
    assert after["stage_ms"]["inference"] <= after["total_ms"]  # without what nobody waited for


def test_a_request_finds_the_frames_of_the_run_in_the_cache(client, jobs, labelled):  # noqa: ARG001 - they are there
    answer = client.post("/v1/classify", json=body_of(jobs[0].row(0, named=True))).json()

    assert answer["stage_ms"]["decode"] == 0
    assert answer["stage_ms"]["cache read"] > 0
    assert sum(answer["stage_ms"].values()) <= 1.5 * answer["total_ms"]


def test_options_of_the_request_choose_other_frames(client, jobs):
    row = jobs[0].row(0, named=True)

    few = client.post("/v1/classify", json=body_of(row, sampler="uniform", num_frames=2)).json()
    more = client.post("/v1/classify", json=body_of(row, sampler="uniform", num_frames=8)).json()

    assert (few["sampler"], few["frames_used"]) == ("uniform", 2)
    assert (more["frames_used"], more["spec_id"] != few["spec_id"]) == (8, True)


def test_a_video_in_chunks_is_answered_chunk_by_chunk(client, jobs):
    answer = client.post("/v1/classify", json=body_of(jobs[0].row(0, named=True), chunk_s=1)).json()

    assert len(answer["chunks"]) > 1
    assert {chunk["label"] for chunk in answer["chunks"]} <= set(jobs[0].row(0, named=True)["choices"])


def test_an_upload_is_answered_as_its_uri_is(client, jobs, labelled):
    row = jobs[0].row(0, named=True)
    path = jobs[1] / row["video_uri"].rpartition("/videos/")[2]
    request = {"prompt": row["prompt"], "choices": list(row["choices"])}

    answers = [
        client.post("/v1/classify", data={"request": json.dumps(request)}, files={"video": path.read_bytes()})
        for _ in range(2)
    ]

    assert answers[0].status_code == 200, answers[0].text
    first, second = (answer.json() for answer in answers)
    assert first["label"] == labelled[row["job_id"]]["label"]
    assert first["probabilities"] == pytest.approx(list(labelled[row["job_id"]]["probabilities"]), abs=1e-4)
    assert (first["stage_ms"]["decode"] > 0, second["stage_ms"]["decode"]) == (True, 0)


def test_an_analysis_is_the_row_of_the_run(client, jobs, described):
    for job_id, (row, chunks) in list(described.items())[:6]:
        [uri] = jobs[0].filter(pl.col("job_id") == job_id)["video_uri"]
        answer = client.post("/v1/analyze", json={"video_uri": uri})

        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert _close(found["tags"], row["tags"])
        assert found["caption"]["text"] == row["caption"]
        assert found["scenes"] == row["scenes"]
        for name in ("duration_s", "scene_changes", "scene_method", "scene_note", "frames_used", "source_fingerprint"):
            assert found[name] == row[name], name
        assert len(found["chunks"]) == len(chunks) == row["chunks"]
        for chunk, expected in zip(found["chunks"], chunks, strict=True):
            assert (chunk["start_s"], chunk["end_s"]) == (expected["start_s"], expected["end_s"])
            assert _close(chunk["tags"], expected["tags"])
        assert found["changes"] == [
            {"chunk": chunk["chunk"]} | change for chunk in chunks for change in chunk["changes"]
        ]


def _close(found, expected):
    return [each["text"] for each in found] == [each["text"] for each in expected] and np.allclose(
        [each["score"] for each in found], [each["score"] for each in expected], atol=1e-4
    )


def test_an_analysis_says_only_what_is_wanted(client, jobs):
    uri = jobs[0]["video_uri"][0]

    answer = client.post("/v1/analyze", json={"video_uri": uri, "caption": False, "scenes": False, "chunk_s": 1}).json()

    assert (answer["caption"], answer["scenes"]) == (None, None)
    assert len(answer["chunks"]) >= 2
    assert answer["tags"]


def test_a_video_that_is_gone_or_none_is_named(client, own_services):
    ObjectStore(own_services.store).replace(f"{own_services.store.uri}/text.mp4", b"no video")
    request = {"prompt": "What?", "choices": ["a", "b"]}

    gone = client.post("/v1/classify", json=request | {"video_uri": f"{own_services.store.uri}/gone.mp4"})
    text = client.post("/v1/analyze", json={"video_uri": f"{own_services.store.uri}/text.mp4"})
    upload = client.post("/v1/classify", data={"request": json.dumps(request)}, files={"video": b"no video"})

    assert (gone.status_code, gone.json()["code"]) == (422, "video_missing")
    assert (text.status_code, text.json()["code"]) == (422, "video_unreadable")
    assert (upload.status_code, upload.json()["code"]) == (422, "video_unreadable")
    assert "reelabel-upload" not in upload.text


def test_beyond_its_slots_requests_are_refused_and_none_fails(client, served, jobs):
    """Each client retries after the time in Retry-After; at the end, all have their answer."""
    rows = jobs[0].to_dicts()[:24]
    refused = []

    def ask(row):
        while True:
            answer = httpx.post(
                f"{served.url}/v1/classify", json=body_of(row, sampler="uniform", num_frames=7), timeout=60
            )
            if answer.status_code != 429:
                return answer.status_code
            refused.append((answer.json()["code"], int(answer.headers["retry-after"]) >= 1))
            time.sleep(0.2)

    with ThreadPoolExecutor(24) as threads:
        assert set(threads.map(ask, rows)) == {200}
    assert set(refused) == {("busy", True)}
    assert client.get("/health").json()["requests"] == 0
    assert 'outcome="busy"' in client.get("/metrics").text


def test_ctrl_c_ends_the_service_in_order(served):
    assert served.end(signal.SIGINT) == 130
    assert served.lines[-1] == "Stopped.", "it was not ended by force, as after eight seconds"
    assert not any("Traceback" in line for line in served.lines)


def test_a_service_that_is_killed_leaves_no_process(environment, jobs, described):  # noqa: ARG001 - see served
    with serving(environment | {"REELABEL_SERVE_LOAD": '["analyze"]'}) as ours:
        children = children_of(ours.process.pid)
        slow = {"video_uri": jobs[0]["video_uri"][1], "chunk_s": 1, "num_frames": 65}
        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(httpx.post, f"{ours.url}/v1/analyze", json=slow, timeout=60)
            time.sleep(0.1)
            ours.process.kill()
            ours.process.wait()
            with suppress(httpx.HTTPError):
                asking.result()

    assert children
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 60)


def children_of(pid):
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
