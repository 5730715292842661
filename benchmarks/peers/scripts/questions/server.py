"""vLLM's OpenAI-compatible server, for tools that ask one.

https://docs.vllm.ai/en/stable/serving/openai_compatible_server/ and
https://docs.vllm.ai/en/stable/features/multimodal_inputs/#video-inputs_1
"""

import json
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress

from benchmarks.peers.scripts.job import QuestionJob
from benchmarks.peers.scripts.progress import answers_counted

MODEL = "model"


@contextmanager
def serving(job: QuestionJob):
    """Start a server; yield the address of its API once it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [job.python, "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", job.model]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--media-io-kwargs", json.dumps(loading(job))]
    for name, value in job.engine.items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value is True else [flag, value if isinstance(value, str) else json.dumps(value)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while server.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                with answers_counted(f"http://127.0.0.1:{port}"):  # by which the bench kills a run halfway
                    yield f"http://127.0.0.1:{port}/v1"
                return
            time.sleep(0.2)
        raise RuntimeError("vLLM's server did not start.")
    finally:
        server.terminate()
        server.wait()


def loading(job: QuestionJob):
    """Return how vLLM loads videos: so many frames, evenly spread."""
    return {"video": {"video_backend": "opencv", "num_frames": job.frames}}
