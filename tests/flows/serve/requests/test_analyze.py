"""Descriptions over HTTP, with real frames and an encoder that knows colours."""

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from flows.serve.app import make_app
from flows.serve.requests import analyze, handle
from flows.serve.requests.analyze import Analyzer
from flows.serve.requests.handle import open_service
from infra.errors import EngineLostError
from infra.settings import ExtractSettings, ServeSettings, Settings, StoreSettings
from tasks.frame_cache.pool import decode_pool
from tests.description.colours import ColourEncoder
from tests.description.test_describer import film
from tests.wait import until


class Encoder(ColourEncoder):
    def start(self):
        pass

    def close(self):
        pass


@pytest.fixture(scope="module")
def encoder():
    return Encoder()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    film(folder / "film.mp4", ("red", 4), ("blue", 5))
    (folder / "colours.txt").write_text("red\ngreen\nblue\n")
    return folder


@pytest.fixture(scope="module")
def app(folder, encoder):
    bank = str(folder / "colours.txt")
    settings = Settings(
        home=folder,
        store=StoreSettings(uri=f"file://{folder}/cache"),
        serve=ServeSettings(max_requests=2),
        describe={"tags": bank, "captions": bank, "chunk_s": 2, "frames_per_chunk": 4},
    )
    with ExitStack() as stack:
        service = stack.enter_context(open_service(settings))
        roots = {"extract": ExtractSettings(processes=1, allow_roots=(folder, service.uploads.folder.resolve()))}
        settings = settings.model_copy(update=roots)
        pool = stack.enter_context(decode_pool(settings, processes=1))
        analyzer = stack.enter_context(Analyzer(settings, pool=pool, encoder=encoder))
        analyzer.wait_ready()
        yield make_app(service, [analyze.analyze_router(partial(analyze.answer, analyzer))])


@pytest.fixture(scope="module")
def client(app):
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture
def film_request(folder):
    return {"video_uri": str(folder / "film.mp4")}


def test_a_film_is_described_as_a_whole_and_chunk_by_chunk(client, film_request):
    answer = client.post("/v1/analyze", json=film_request | {"top_k": 2})

    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [chunk["caption"]["text"] for chunk in found["chunks"]] == ["red", "red", "blue", "blue", "blue"]
    assert found["caption"]["text"] == "blue"
    assert {tag["text"] for tag in found["tags"]} == {"blue", "red"}
    assert [scene["start_s"] for scene in found["scenes"]] == pytest.approx([0, 4], abs=0.3)
    assert found["scene_changes"] == 1
    assert found["frames_used"] == sum(chunk["frames_used"] for chunk in found["chunks"])
    assert set(found["stage_ms"]) >= {"fetch", "decode", "embed", "scenes", "describe", "other"}


def test_scenes_are_found_by_the_published_method_if_a_request_says_so(client, film_request):
    found = client.post("/v1/analyze", json=film_request | {"method": "published"}).json()
    other = client.post("/v1/analyze", json=film_request | {"method": "newer"}).json()

    assert found["scene_method"] == "published"
    assert found["scene_changes"] > 1  # one cut is reported for several consecutive frames
    assert other["code"] == "invalid_request"


def test_what_is_not_wanted_is_left_out(client, film_request):
    found = client.post("/v1/analyze", json=film_request | {"tags": False, "caption": False, "scenes": False}).json()

    assert [found[name] for name in ("tags", "caption", "scenes", "scene_changes", "changes")] == [None] * 5
    assert all(chunk[name] is None for chunk in found["chunks"] for name in ("tags", "caption"))


def test_chunks_frames_and_the_segment_are_as_asked(client, film_request):
    found = client.post("/v1/analyze", json=film_request | {"chunk_s": 3, "num_frames": 2, "start_s": 4.0}).json()

    assert [chunk["start_s"] for chunk in found["chunks"]] == [4, 7]
    assert {chunk["frames_used"] for chunk in found["chunks"]} == {2}
    assert {chunk["caption"]["text"] for chunk in found["chunks"]} == {"blue"}


def test_the_same_video_is_embedded_once_also_as_an_upload(client, film_request, folder):
    client.post("/v1/analyze", json=film_request)
    video = (folder / "film.mp4").read_bytes()

    by_uri = client.post("/v1/analyze", json=film_request).json()
    uploads = [client.post("/v1/analyze", data={"request": "{}"}, files={"video": video}).json() for _ in range(2)]

    assert by_uri["was_cached"]
    assert [upload["was_cached"] for upload in uploads] == [False, True]
    assert uploads[1]["tags"] == by_uri["tags"]


def test_tags_captions_and_their_number_are_those_of_the_request(client, film_request):
    banks = {"tag_bank": ["green", "blue"], "caption_bank": ["red"]}

    found = client.post("/v1/analyze", json=film_request | banks | {"top_k": 1}).json()

    assert [tag["text"] for tag in found["tags"]] == ["blue"]
    assert {chunk["caption"]["text"] for chunk in found["chunks"]} == {"red"}


def test_each_change_has_its_score_chunk_and_frame(client, film_request):
    found = client.post("/v1/analyze", json=film_request | {"num_frames": 4}).json()

    [change] = found["changes"]
    assert change["time_s"] == pytest.approx(4, abs=0.3)
    assert (change["chunk"], change["frame"], change["kind"]) == (2, 0, "cut")
    assert change["score"] > 0


def test_parts_of_a_stream_go_on_from_the_part_before(client, folder):
    parts = [folder / "first.mp4", folder / "second.mp4"]
    film(parts[0], ("red", 4))
    film(parts[1], ("blue", 5))
    requests = [{"video_uri": str(part), "stream_id": "film"} for part in parts]

    first, second = (client.post("/v1/analyze", json=request).json() for request in requests)
    alone = client.post("/v1/analyze", json=requests[1] | {"stream_id": "another"}).json()

    assert (first["scene_changes"], alone["scene_changes"]) == (0, 0)
    [change] = second["changes"]
    assert (change["chunk"], change["frame"]) == (2, 0)
    assert 4 <= change["time_s"] < 4.6
    assert [chunk["chunk"] for chunk in (*first["chunks"], *second["chunks"])] == [0, 1, 2, 3, 4]
    assert (second["chunks"][0]["start_s"], second["chunks"][-1]["end_s"]) == (4, 9)
    assert alone["chunks"][0]["chunk"] == 0

    again, third = (client.post("/v1/analyze", json=request).json() for request in reversed(requests))
    assert [each["chunk"] for each in again["chunks"]] == [2, 3, 4]  # as if its answer had been lost
    assert again["changes"] == second["changes"]
    assert third["chunks"][0]["start_s"] == 9


def test_parts_of_a_stream_that_come_at_once_follow_each_other(client, folder):
    colours = ("red", "blue", "red", "blue")
    parts = [folder / f"part-{number}.mp4" for number in range(len(colours))]
    for number, (part, colour) in enumerate(zip(parts, colours, strict=True)):
        film(part, (colour, 2 + number / 5))
    requests = [{"video_uri": str(part), "stream_id": "at once", "chunk_s": 1} for part in parts]

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda each: client.post("/v1/analyze", json=each).json(), requests))

    chunks = sorted((chunk for answer in answers for chunk in answer["chunks"]), key=lambda each: each["start_s"])
    assert [each["chunk"] for each in chunks] == list(range(len(chunks)))
    assert [each["end_s"] for each in chunks[:-1]] == pytest.approx([each["start_s"] for each in chunks[1:]])


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"tag_bank": ["red", ""]}, "invalid_request", "The bank tag_bank cannot be used: line 2 is empty"),
        ({"video_uri": None}, "invalid_request", "Pass a video_uri"),
        ({"prompt": "What?"}, "invalid_request", "prompt: unknown field"),
        ({"chunk_s": 0}, "invalid_request", "chunk_s: must be at least 1"),
        ({"num_frames": 513}, "invalid_request", "num_frames: must be at most 512"),
        ({"num_frames": True}, "invalid_request", "num_frames: must be a number"),
        ({"tags": "places.txt"}, "invalid_request", "tags: must be true or false"),
        ({"start_s": 2, "end_s": 1}, "invalid_request", "end_s is not after start_s"),
        ({"start_s": 100}, "sampling_refused", "ends at 9 s"),
        ({"video_uri": "/etc/passwd"}, "video_refused", "allow_roots"),
    ],
)
def test_a_bad_request_is_refused_with_its_code(client, film_request, body, code, message):
    answer = client.post("/v1/analyze", json=film_request | body)

    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
    assert message in answer.json()["message"]


def test_a_video_that_could_not_be_read_is_tried_again(client, folder):
    path, data = folder / "again.mp4", (folder / "film.mp4").read_bytes()
    answers = []
    for content in (bytes(len(data)), data):
        path.write_bytes(content)
        os.utime(path, (1, 1))  # as far as its version tells, it is the same
        answers.append(client.post("/v1/analyze", json={"video_uri": str(path)}))

    assert [answer.status_code for answer in answers] == [422, 200], [answer.text for answer in answers]


def test_a_request_that_lost_its_encoder_may_be_repeated(client, film_request, encoder):
    with patch.object(encoder, "embed_images", side_effect=EngineLostError("The encoder has died.")):
        answer = client.post("/v1/analyze", json=film_request | {"num_frames": 3})

    assert (answer.status_code, answer.json()["code"]) == (503, "engine_lost")
    assert client.post("/v1/analyze", json=film_request | {"num_frames": 3}).status_code == 200


@contextmanager
def on_a_port(app):
    """Serve on a port of its own, which is yielded: a client of the application alone cannot leave."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, loop="asyncio", log_config=None, timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        until(lambda: server.started)
        yield opened.getsockname()[1]
        server.should_exit = True
        thread.join(10)


@pytest.mark.system
def test_the_description_of_a_long_film_ends_with_its_client_and_counts_as_cancelled(app, folder, encoder):
    seconds, before = 3600, encoder.images_embedded
    film(folder / "long.mp4", ("red", seconds / 2), ("blue", seconds / 2))
    body = json.dumps({"video_uri": str(folder / "long.mp4")}).encode()
    head = "POST /v1/analyze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"

    with (
        patch.object(handle, "count_request", wraps=handle.count_request) as ended,
        on_a_port(app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as other_client,
    ):
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: encoder.images_embedded > before)
        began_s = time.monotonic()
        until(lambda: not other_client.get("/health").json()["requests"])
        took_s, embedded = time.monotonic() - began_s, encoder.images_embedded
        short = other_client.post("/v1/analyze", json={"video_uri": str(folder / "film.mp4"), "num_frames": 5})

    assert took_s < 20
    assert embedded - before < seconds  # of two a second
    assert short.status_code == 200
    assert encoder.images_embedded - embedded <= short.json()["frames_used"]
    assert [call.args[:2] for call in ended.call_args_list] == [("analyze", "cancelled"), ("analyze", "answered")]
