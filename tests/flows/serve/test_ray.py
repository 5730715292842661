"""The service as an application of Ray Serve, on a real Ray on this machine, against that of one machine."""

import itertools
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from flows.serve.app import make_app
from flows.serve.engines import open_engines
from flows.serve.requests.handle import open_service
from infra.processes import free_port
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import make_demo
from tests.reelabel.ray_data.conftest import starting_ray
from tests.wait import until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ray")]
TOKEN = "a-token-of-the-service"
OURS = {"Authorization": f"Bearer {TOKEN}"}
SLOTS = 4
START_S = 240  # of a replica, on a busy machine


@pytest.fixture(scope="module")
def environment(served, tmp_path_factory):
    """The settings of the service, in this process and in those that it starts."""
    bank = tmp_path_factory.mktemp("bank") / "shapes.txt"
    bank.write_text("\n".join(SHAPE_BANK))
    service = {
        "REELABEL_DESCRIBE_TAGS": str(bank),
        "REELABEL_SERVE_LOAD": '["classify", "analyze"]',
        "REELABEL_SERVE_TOKEN": TOKEN,
        "REELABEL_SERVE_MAX_REQUESTS": str(SLOTS),
    }
    with pytest.MonkeyPatch.context() as ours:
        for name, value in (served | service).items():
            if os.environ.get(name) != value:
                ours.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def server(vllm_server):
    """A model whose answers are the same each time: the stub's depend on a frame file's times as well."""
    return vllm_server


@pytest.fixture(scope="module")
def clips(own_services, tmp_path_factory):
    """Rows of the demo, whose clips are on S3; and the bytes of each, by URI."""
    folder, root = tmp_path_factory.mktemp("demo"), f"{own_services.store.uri}/videos"
    rows = make_demo(folder, seed=7, clips=2, uri_prefix=root).to_dicts()
    objects = ObjectStore(own_services.store)
    files = {f"{root}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for uri, data in files.items():
        objects.replace(uri, data)
    return rows, files


@pytest.fixture(scope="module")
def requests(clips):
    """Requests of each kind, as routes and bodies."""
    [row, *_], files = clips
    question, uri = question_of(row), {"video_uri": row["video_uri"]}

    def upload(request, data=files[row["video_uri"]]):
        return {"data": {"request": json.dumps(request)}, "files": {"video": data}}

    return [
        ("/v1/classify", {"json": question | uri}),
        ("/v1/classify", {"json": question | uri | {"chunk_s": 1}}),
        ("/v1/classify", upload(question)),
        ("/v1/classify", {"json": question | {"video_uri": f"{row['video_uri']}.gone"}}),
        ("/v1/classify", {"json": question | uri | {"colour": "red"}}),
        ("/v1/analyze", {"json": uri | {"chunk_s": 2}}),
        ("/v1/analyze", upload({})),
        ("/v1/analyze", upload({}, b"no video")),
        ("/v1/nothing", {"json": {}}),
    ]


@pytest.fixture(scope="module")
def analyses(clips):
    """Requests whose frames are not embedded on the store when they are asked on Ray."""
    uri = {"video_uri": clips[0][1]["video_uri"]}
    return [("/v1/analyze", {"json": uri | {"num_frames": number}}) for number in (5, 6)]


@pytest.fixture(scope="module")
def parts(clips):
    """Requests for the parts of a stream, each another clip."""
    return [
        ("/v1/analyze", {"json": {"video_uri": uri, "stream_id": "film", "chunk_s": 2}})
        for uri in sorted({row["video_uri"] for row in clips[0]})
    ]


@pytest.fixture(scope="module")
def expected(environment, requests, analyses, parts):  # noqa: ARG001 - the settings
    """What the service of one machine answers, and its OpenAPI description."""
    settings = load_settings()
    objects = ObjectStore(settings.store)
    with open_service(settings) as service, open_engines(settings, uploads=service.uploads.folder) as answering:
        client = TestClient(make_app(service, answering.routers), base_url="http://127.0.0.1", headers=OURS)
        answers = [client.post(route, **body) for route, body in requests]
        before = {each.uri for each in objects.list(settings.store.uri)}
        answers += [client.post(route, **body) for route, body in [*analyses, *parts]]
        for each in [*objects.list(settings.store.uri)]:
            if each.uri not in before:
                objects.remove(each.uri)
        return answers, client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def deployed(expected):  # noqa: ARG001 - one service at a time
    """The URL of the application on Ray."""
    with pytest.MonkeyPatch.context() as ours:
        for probe in ("READY", "HEALTH"):  # or Ray Serve would end what a busy machine starts slowly
            ours.setenv(f"RAY_SERVE_PROXY_{probe}_CHECK_TIMEOUT_S", str(START_S))
        with starting_ray(cpus=16):
            from ray import serve  # noqa: PLC0415 - takes seconds

            port = free_port()
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            deploy(target_ongoing_requests=4)
            yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(deployed):
    with httpx.Client(base_url=deployed, headers=OURS, timeout=START_S) as client:
        yield client


def deploy(**scaling):
    """Deploy what a file for `serve deploy` says, with decoders and encoders that scale as it says, and wait.

    If nothing but that has changed, replicas stay.
    """
    from ray import serve  # noqa: PLC0415
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

    scaled = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2, **scaling}}
    deployments = [{"name": name} | scaled for name in ("Decoder", "Encoder")]
    application = {"import_path": "flows.serve.ray:application", "args": {"gpus": False}, "deployments": deployments}
    file = {"applications": [{"name": "default", **application}]}
    serve.context._get_global_client().deploy_apps(ServeDeploySchema.model_validate(file))
    until(lambda: serve.status().applications["default"].status == "RUNNING", START_S, details=serve.status)


def question_of(row):
    return {"prompt": row["prompt"], "choices": list(row["choices"])}


def replicas(deployment):
    """The processes of a deployment's replicas."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(f"ray::ServeReplica:default:{deployment}".encode()):
                found.append(int(process.name))
    return found


def test_nothing_is_deployed_that_others_could_ask_or_that_shares_no_store(monkeypatch):
    from flows.serve.ray import application  # noqa: PLC0415 - see deployed

    for name in ("REELABEL_SERVE_TOKEN", "REELABEL_STORE_URI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=r"serve\.token"):
        application({})
    monkeypatch.setenv("REELABEL_SERVE_TOKEN", TOKEN)
    with pytest.raises(ConfigurationError, match=r"store\.uri"):
        application({})
    with pytest.raises(ConfigurationError, match=r"gpus maybe: "):
        application({"gpus": "maybe"})


def test_each_request_is_answered_as_on_one_machine(client, requests, expected):
    answers, described = expected
    for (route, body), reference in zip(requests, answers, strict=False):
        answer = client.post(route, **body)

        assert answer.status_code == reference.status_code, answer.text
        assert comparable(answer.json()) == approximately(comparable(reference.json()))
    assert client.get("/openapi.json").json() == described
    assert client.get("/health").json()["slots"] == SLOTS


def test_only_clients_with_the_token_may_ask(deployed):
    assert httpx.post(f"{deployed}/v1/classify", json={}).status_code == 401
    assert httpx.get(f"{deployed}/health").status_code == 200


def test_every_deployment_scales_by_its_requests(deployed):  # noqa: ARG001 - what is deployed
    from ray import serve  # noqa: PLC0415

    found = serve.context._get_global_client().get_serve_details()["applications"]["default"]["deployments"]

    assert found.pop("Streams")["deployment_config"]["num_replicas"] == 1
    assert found.keys() == {"Ingress", "Decoder", "Encoder", "Engine"}
    for each in found.values():
        scaling = each["deployment_config"]["autoscaling_config"]
        assert scaling["target_ongoing_requests"] >= 1
        assert scaling["max_replicas"] > scaling["min_replicas"]


def test_beyond_its_slots_requests_are_refused_at_once(client, deployed, clips):
    row = clips[0][1]
    [engine] = replicas("Engine")
    body = question_of(row) | {"video_uri": row["video_uri"]}

    os.kill(engine, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(SLOTS) as threads:
            waiting = [
                threads.submit(httpx.post, f"{deployed}/v1/classify", json=body, headers=OURS, timeout=START_S)
                for _ in range(SLOTS)
            ]
            until(lambda: client.get("/health").json()["requests"] == SLOTS)
            refused = client.post("/v1/classify", json=body)
            os.kill(engine, signal.SIGCONT)
            answers = [each.result().status_code for each in waiting]
    finally:
        os.kill(engine, signal.SIGCONT)

    assert (refused.status_code, refused.json()["code"]) == (429, "busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert answers == [200] * SLOTS


def test_a_client_that_goes_away_frees_its_slot(client, deployed, clips):
    row = clips[0][1]
    [engine] = replicas("Engine")
    body = question_of(row) | {"video_uri": row["video_uri"]}

    os.kill(engine, signal.SIGSTOP)
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{deployed}/v1/classify", json=body, headers=OURS, timeout=2)
        until(lambda: client.get("/health").json()["requests"] == 0)
    finally:
        os.kill(engine, signal.SIGCONT)


def test_what_a_lost_replica_had_in_work_is_asked_of_another_one(client, deployed, requests, expected):
    route, body = requests[0]
    [decoder], [engine] = replicas("Decoder"), replicas("Engine")

    os.kill(engine, signal.SIGSTOP)  # so that the decoder has the request in work
    try:
        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(httpx.post, deployed + route, **body, headers=OURS, timeout=START_S)
            until(lambda: client.get("/health").json()["requests"])
            time.sleep(1)
            os.kill(decoder, signal.SIGKILL)
            os.kill(engine, signal.SIGCONT)
            answer = asking.result()
    finally:
        os.kill(engine, signal.SIGCONT)

    assert answer.status_code == 200, answer.text
    assert answer.json()["label"] == expected[0][0].json()["label"]
    assert replicas("Decoder") != [decoder]


def test_parts_of_a_stream_are_described_as_by_one_process_whichever_replicas_get_them(client, parts, expected):
    reference = [each.json() for each in expected[0][-len(parts) :]]
    answers = []
    for route, body in parts:
        answers.append(client.post(route, **body).json())
        [decoder] = replicas("Decoder")
        os.kill(decoder, signal.SIGKILL)  # so that another one gets the next part
        until(lambda lost=decoder: replicas("Decoder") not in ([], [lost]), START_S)

    assert [comparable(each) for each in answers] == approximately([comparable(each) for each in reference])
    assert answers[1]["chunks"][0]["chunk"] == len(answers[0]["chunks"])
    assert answers[1]["chunks"][0]["start_s"] == answers[0]["duration_s"]


def test_ongoing_requests_start_a_second_decoder_and_encoder_and_both_of_each_answer(
    deployed, requests, analyses, expected
):
    answers, _ = expected
    waiting = [*zip(requests[:2], answers, strict=False), *zip(analyses, answers[len(requests) :], strict=False)]
    [engine], [encoder] = replicas("Engine"), replicas("Encoder")
    deploy(target_ongoing_requests=1, upscale_delay_s=1, look_back_period_s=2)

    def ask(request):
        (route, body), reference = request
        answer = httpx.post(deployed + route, **body, headers=OURS, timeout=START_S)
        assert answer.status_code == 200, answer.text
        assert comparable(answer.json()) == approximately(comparable(reference.json()))

    with ThreadPoolExecutor(len(waiting)) as threads:
        for model in (engine, encoder):  # so that the requests go on until there are second replicas
            os.kill(model, signal.SIGSTOP)
        try:
            asking = [threads.submit(ask, each) for each in waiting]
            # A replica that is starting a process counts as two for a moment.
            until(lambda: [len(replicas(name)) for name in ("Engine", "Decoder", "Encoder")] == [1, 2, 2], START_S)
        finally:
            for model in (engine, encoder):
                os.kill(model, signal.SIGCONT)
        for each in asking:
            each.result()
        frames, until_s = itertools.count(7), time.monotonic() + START_S
        while not all((*calls_of("Decoder").values(), *calls_of("Encoder").values())) and time.monotonic() < until_s:
            list(threads.map(ask, waiting))
            body = analyses[0][1]["json"] | {"num_frames": next(frames)}  # whose frames no encoder has seen
            assert httpx.post(f"{deployed}/v1/analyze", json=body, headers=OURS, timeout=START_S).status_code == 200
    for name in ("Decoder", "Encoder"):
        until(lambda name=name: [bool(count) for count in calls_of(name).values()] == [True, True], START_S)


def calls_of(deployment):
    """By replica, how many questions, or frames, it has answered, as its log says."""
    answered = {"Decoder": " CALL classify OK ", "Encoder": " CALL embed_images OK "}[deployment]
    counts = {}
    for replica in replicas(deployment):
        files = []
        for file in Path(f"/proc/{replica}/fd").iterdir():
            with suppress(FileNotFoundError):  # it has been closed meanwhile
                files.append(file.readlink())
        for log in {file for file in files if file.name.startswith(f"replica_default_{deployment}_")}:
            counts[replica] = log.read_text().count(answered)
    return counts


def comparable(answer):
    """Leave out times, and what depends on who asked first."""
    varies = {"stage_ms", "total_ms", "was_cached", "cached_tokens", "decode_method", "decode_note"}
    return {name: value for name, value in answer.items() if name not in varies}


def approximately(value):
    """Compare numbers approximately, at any depth."""
    match value:
        case dict():
            return {name: approximately(each) for name, each in value.items()}
        case list():
            return [approximately(each) for each in value]
        case float():
            return pytest.approx(value, abs=1e-3)
        case _:
            return value
