"""The service as an application of Ray Serve, on a real Ray on this machine, against `reelabel serve`."""

import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from reelabel.sources.object_store import ObjectStore
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import make_demo
from tests.flows.serve.served import serving
from tests.reelabel.ray_data.conftest import starting_ray

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ray")]
TOKEN = "a-token-of-the-service"
OURS = {"Authorization": f"Bearer {TOKEN}"}
PLACES = 4


@pytest.fixture(scope="module")
def environment(served, tmp_path_factory):
    bank = tmp_path_factory.mktemp("bank") / "shapes.txt"
    bank.write_text("\n".join(SHAPE_BANK))
    return served | {
        "REELABEL_DESCRIBE_TAGS": str(bank),
        "REELABEL_SERVE_LOAD": '["classify", "analyze"]',
        "REELABEL_SERVE_TOKEN": TOKEN,
        "REELABEL_SERVE_MAX_REQUESTS": str(PLACES),
    }


@pytest.fixture(scope="module")
def clips(own_services, tmp_path_factory):
    """Rows of the demo, whose clips are on S3; and their bytes."""
    folder, root = tmp_path_factory.mktemp("demo"), f"{own_services.store.uri}/videos"
    rows = make_demo(folder, seed=7, clips=8, uri_prefix=root).to_dicts()
    objects = ObjectStore(own_services.store)
    files = {f"{root}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for uri, data in files.items():
        objects.replace(uri, data)
    return rows, files


@pytest.fixture(scope="module")
def requests(clips):
    """Requests of each kind, by route and body."""
    rows, files = clips
    row = rows[0]
    asked = {"prompt": row["prompt"], "choices": list(row["choices"])}
    uri = {"video_uri": row["video_uri"]}
    upload = {"data": {"request": json.dumps(asked)}, "files": {"video": files[row["video_uri"]]}}
    return [
        ("/v1/classify", {"json": asked | uri}),
        ("/v1/classify", {"json": asked | uri | {"chunk_s": 1}}),
        ("/v1/classify", {"json": asked | {"video_uri": f"{row['video_uri']}.gone"}}),
        ("/v1/classify", {"json": asked | uri | {"colour": "red"}}),
        ("/v1/classify", upload),
        ("/v1/analyze", {"json": uri | {"chunk_s": 2}}),
        ("/v1/analyze", {"data": {"request": "{}"}, "files": {"video": files[row["video_uri"]]}}),
        ("/v1/analyze", {"data": {"request": "{}"}, "files": {"video": b"no video"}}),
    ]


@pytest.fixture(scope="module")
def expected(environment, requests):
    """What `reelabel serve` answers, and its OpenAPI description."""
    with serving(environment) as ours, httpx.Client(base_url=ours.url, headers=OURS, timeout=60) as client:
        answers = [client.post(route, **body) for route, body in requests]
        return answers, client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def deployed(environment, expected):  # noqa: ARG001 - what has decoded the videos before
    """The application on Ray; its URL."""
    with pytest.MonkeyPatch.context() as ours:
        for name in environment.keys() - os.environ.keys():
            ours.setenv(name, environment[name])
        with starting_ray(cpus=16):
            from ray import serve

            from flows.serve.ray.application import application

            port = free_port()
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            serve.run(application({"gpus": "false"}))
            yield f"http://127.0.0.1:{port}"
            serve.shutdown()


@pytest.fixture
def client(deployed):
    with httpx.Client(base_url=deployed, headers=OURS, timeout=60) as client:
        yield client


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def test_each_request_is_answered_as_on_one_machine(client, requests, expected):
    for (route, body), there in zip(requests, expected[0], strict=True):
        here = client.post(route, **body)
        print(here.status_code, here.text[:300])

        assert here.status_code == there.status_code, here.text
