"""Our loaders behind a real `vllm serve`."""

import json
import subprocess
from contextlib import suppress

import pytest
import urllib3

from infra.processes import free_port
from reelabel.integrations.vllm.decode import PROCESSES_VARIABLE
from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL
from tests.reelabel.vllm.conftest import MEDIA, chat_about
from tests.wait import until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("loaders")]


@pytest.fixture(scope="module")
def server(chat_inputs, vllm_python_with_arrow, tmp_path_factory):
    """URL of what `vllm serve` starts, decoding in processes of their own; the command itself needs a CUDA build."""
    port = free_port()
    command = [str(vllm_python_with_arrow), "-P", "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(TINY_MODEL)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", "--enforce-eager"]
    command += ["--block-size", "32", "--limit-mm-per-prompt", '{"image": 0, "video": 1}']
    command += ["--logprobs-mode", "processed_logprobs", "--allowed-local-media-path", str(chat_inputs.folder)]
    command += ["--media-io-kwargs", json.dumps(MEDIA), "--trust-request-mm-kwargs"]
    command += ["--kv-cache-memory-bytes", "256M"]
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))
    environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", PROCESSES_VARIABLE: "1"}
    log_path = tmp_path_factory.mktemp("serve") / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: is_healthy(url, process, log_path), 600, details=log_path.read_text)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # one that still starts may not listen to the signal
            process.kill()
            process.wait()


def is_healthy(url, process, log_path):
    assert process.poll() is None, log_path.read_text()
    with suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"{url}/health", retries=False, timeout=1).status == 200
    return False


def post(server, chat_inputs, form, **extra):
    body = {
        "model": "tiny",
        "messages": chat_about(chat_inputs.urls[form]),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": len(chat_inputs.allowed),
        "allowed_token_ids": chat_inputs.allowed,
        "return_tokens_as_token_ids": True,
    }
    return urllib3.request("POST", f"{server}/v1/chat/completions", json=body | extra, retries=False, timeout=500)


def logprobs_of(response):
    assert response.status == 200, response.data
    [token] = response.json()["choices"][0]["logprobs"]["content"]
    return {entry["token"].removeprefix("token_id:"): entry["logprob"] for entry in token["top_logprobs"]}


@pytest.mark.parametrize("form", ["video file", "video data", "frame file", "frame data"])
def test_a_server_answers_like_our_engine(server, chat_inputs, form):
    response = post(server, chat_inputs, form)

    assert chat_inputs.probabilities(logprobs_of(response)) == pytest.approx(chat_inputs.expected, abs=1e-5)


def test_a_request_may_name_the_loader_of_frame_files(server, chat_inputs):
    response = post(server, chat_inputs, "frame file", media_io_kwargs={"video": {"video_backend": "reelabel_frames"}})

    assert chat_inputs.probabilities(logprobs_of(response)) == pytest.approx(chat_inputs.expected, abs=1e-5)


@pytest.mark.parametrize(
    ("form", "message"), [("no video", "FFmpeg cannot open the video"), ("cut frame file", "frame file")]
)
def test_a_bad_video_fails_its_request_with_one_sentence(server, chat_inputs, form, message):
    response = post(server, chat_inputs, form)

    assert response.status == 422
    assert message in response.json()["error"]["message"]


def test_an_option_that_no_sampler_takes_is_named(server, chat_inputs):
    response = post(server, chat_inputs, "video file", media_io_kwargs={"video": {"colour": "red"}})

    assert response.status == 400
    assert "colour" in response.json()["error"]["message"]
