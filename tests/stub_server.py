"""A server with vLLM's API but no model, in the test's own process; it starts immediately.

An answer depends only on the question and its video: see `probabilities_of`. As in vLLM, prompts are limited to
`MAX_TOKENS`, `/tokenize` uses the tiny model's tokenizer, and logprobs can be requested by token id.
"""

import base64
import json
import threading
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import ascii_uppercase

from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.prompts.ambiguity import load_tokenizer
from tasks.model.prompts.prompt import choice_probabilities, choice_tokens
from tests.vllm_server import KEY, NAME

MAX_TOKENS = 2048
_FRAME_FILE = "data:application/vnd.apache.arrow.file;base64,"
_LIKELY = "ABCD"  # all other tokens are almost impossible
_SHOWN = 20


@cache
def encoder():
    """Return the tiny model's tokenizer."""
    return load_tokenizer(read_model_card(str(TINY_MODEL)))


def probabilities_of(question, frame_file):
    """Return the probabilities in the server's answer to a question about a frame file."""
    tokens = choice_tokens(question.choices, scoring=question.scoring, encode=encoder())
    seed = _digest(question.text, question.system_prompt, frame_file)
    return choice_probabilities(tokens, {token: _logprob(seed, token) for token in set().union(*tokens)})


@contextmanager
def serve_stub(root=str(TINY_MODEL)):
    """Yield the URL of its API, which requires `KEY` and serves model `NAME`, loaded from `root`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.root = root
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answers = {
            "/v1/models": {"data": [{"id": NAME, "root": self.server.root, "max_model_len": MAX_TOKENS}]},
            "/version": {"version": "stub"},
        }
        self._respond(200, answers[self.path])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._respond(*{"/tokenize": _tokenize, "/v1/chat/completions": _complete}[self.path](body))

    def _respond(self, status, answer):
        if self.headers["Authorization"] != f"Bearer {KEY}":
            status, answer = 401, {"error": "Unauthorized"}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments):
        pass


def _tokenize(body):
    return 200, {"tokens": encoder()(body["prompt"])}


def _complete(body):
    *system, user = body["messages"]
    *videos, text = user["content"]
    prompt_tokens = len(encoder()(text["text"]))
    if prompt_tokens > MAX_TOKENS:
        message = f"This model's maximum context length is {MAX_TOKENS} tokens."
        return 400, {"error": {"message": message, "code": 400}}
    seed = _digest(text["text"], system[0]["content"] if system else None, b"".join(map(_content, videos)))
    if "logprob_token_ids" in body:
        top = [{"token": f"token_id:{one}", "logprob": _logprob(seed, one)} for one in body["logprob_token_ids"]]
    else:
        shown = [{"token": letter, "logprob": _logprob(seed, encoder()(letter)[0])} for letter in ascii_uppercase]
        top = sorted(shown, key=lambda one: -one["logprob"])[:_SHOWN]
    usage = {"prompt_tokens": prompt_tokens, "prompt_tokens_details": {"cached_tokens": 0}}
    return 200, {"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}], "usage": usage}


def _content(part):
    url = part[part["type"]]["url"]
    return base64.b64decode(url.removeprefix(_FRAME_FILE)) if url.startswith(_FRAME_FILE) else url.encode()


def _digest(text, system_prompt, content):
    return blake2b(repr((text, system_prompt)).encode() + content).digest()


def _logprob(seed, token):
    is_likely = token in {encoder()(letter)[0] for letter in _LIKELY}
    return -seed[token % len(seed)] / 256 - (1 if is_likely else 20)
