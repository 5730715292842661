"""A server with vLLM's API but no model, in the test's own process; it starts immediately.

An answer depends only on the question and its video: see `probabilities_of`. As in vLLM, prompts are limited to
`MAX_TOKENS`, `/tokenize` uses the tiny model's tokenizer, and logprobs can be requested by token id. A streamed answer
tells what was shown, in speech if that is asked for: see `speech_of`.
"""

import base64
import json
import ssl
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from string import ascii_uppercase

from tokenizers import Tokenizer

from reelabel_engine.prompts import choice_tokens, score_choices
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.ambiguity import load_tokenizer
from tests.http_server import Handler, serve
from tests.vllm_server import KEY, NAME

MAX_TOKENS = 2048
_FRAME_FILE = "data:application/vnd.apache.arrow.file;base64,"
_LIKELY = "ABCD"  # all other tokens are almost impossible
_SHOWN = 20


@cache
def encoder():
    """Return the tiny model's tokenizer."""
    return load_tokenizer(read_model_info(str(TINY_MODEL)))


@cache
def tokenizer():
    return Tokenizer.from_file(str(TINY_MODEL / "tokenizer.json"))


def probabilities_of(question, frame_file):
    """Return the probabilities in the server's answer to a question about a frame file."""
    tokens = choice_tokens(question.choices, scoring=question.scoring, encode=encoder())
    seed = _digest(question.text, question.system_prompt, frame_file)
    return score_choices(tokens, {token: _logprob(seed, token) for token in set().union(*tokens)}).probabilities


class Spoken:
    """Texts of questions whose streamed answers break off, or are none."""

    CUT, NO_BASE64, HALF_A_SAMPLE, NO_JSON = "Be cut off.", "No base64.", "Half a sample.", "No JSON."
    NO_ASCII = "No ASCII."


def speech_of(word, voice):
    """Return how the server says a word: 16-bit PCM, 40 ms a letter."""
    return (blake2b(f"{voice} {word}".encode()).digest() * 30)[:1920] * len(word)


@contextmanager
def serve_stub(root=str(TINY_MODEL), *, weights=lambda: b"", ending=lambda _arguments: "\n", tls=None):
    """Yield the URL of its API, which requires `KEY` and serves model `NAME`, loaded from `root`.

    `weights` names the weights that answer a question; it is called for each. `ending` is what the chat template puts
    after the question, by its arguments. With `tls`, the files of a certificate and its key, it is reached by HTTPS.
    """
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*tls)
    with serve(_Handler, tls=context, root=root, weights=weights, ending=ending) as server:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/v1"


class _Handler(Handler):
    def do_GET(self):
        answers = {
            "/v1/models": {"data": [{"id": NAME, "root": self.server.root, "max_model_len": MAX_TOKENS}]},
            "/version": {"version": "stub"},
        }
        self._respond(200, answers[self.path])

    def do_POST(self):
        body = json.loads(self.read_body())
        if body.get("stream"):
            self._stream(body)
            return
        if self.path == "/tokenize":
            text = body["prompt"] if "prompt" in body else self._chat(body)
            self._respond(200, {"tokens": encoder()(text)})
        elif self.path == "/detokenize":
            self._respond(200, {"prompt": tokenizer().decode(body["tokens"], skip_special_tokens=False)})
        else:
            self._respond(*_complete(body, self.server.weights()))

    def _chat(self, body):
        [message] = body["messages"]
        return f"{message['content'][0]['text']}{self.server.ending(body.get('chat_template_kwargs', {}))}"

    def _respond(self, status, answer):
        if self.headers["Authorization"] != f"Bearer {KEY}":
            status, answer = 401, {"error": "Unauthorized"}
        self.respond(status, json.dumps(answer).encode(), Content_Type="application/json")

    def _stream(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client may have given up
            for event in _events(body):
                self.wfile.write(f"data: {event}\n\n".encode())


def _complete(body, weights):
    *system, user = body["messages"]
    *videos, text = user["content"]
    prompt_tokens = len(encoder()(text["text"]))
    if prompt_tokens > MAX_TOKENS:
        message = f"This model's maximum context length is {MAX_TOKENS} tokens."
        return 400, {"error": {"message": message, "code": 400}}
    content = b"".join(map(_content, videos)) + weights
    seed = _digest(text["text"], system[0]["content"] if system else None, content)
    wide = 4 if weights else 1  # other weights answer very differently
    if "logprob_token_ids" in body:
        top = [{"token": f"token_id:{one}", "logprob": wide * _logprob(seed, one)} for one in body["logprob_token_ids"]]
    else:
        shown = [
            {"token": letter, "logprob": wide * _logprob(seed, encoder()(letter)[0])} for letter in ascii_uppercase
        ]
        top = sorted(shown, key=lambda one: -one["logprob"])[:_SHOWN]
    usage = {"prompt_tokens": prompt_tokens, "prompt_tokens_details": {"cached_tokens": 0}}
    choice = {"logprobs": {"content": [{"top_logprobs": top}]}}
    return 200, {"model": body["model"], "choices": [choice], "usage": usage}


def _events(body):
    """Yield the events of a streamed answer; the request's parts are told by their kinds, in order."""
    *shown, text = body["messages"][-1]["content"]
    kinds = [part["type"].split("_")[-1 if part["type"] == "input_audio" else 0] for part in shown]
    words = [f"{word} " for word in (*kinds, *text["text"].split())][: body["max_tokens"]]
    yield json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    for word in words:
        delta = {"content": word}
        if "audio" in body.get("modalities", ()):
            data = base64.b64encode(speech_of(word, body["audio"]["voice"])).decode()
            data = {Spoken.NO_BASE64: "%%", Spoken.NO_ASCII: "é", Spoken.HALF_A_SAMPLE: "AAAA"}.get(text["text"], data)
            delta = {"audio": {"id": "a", "data": data, "transcript": word}}
        yield json.dumps({"choices": [{"index": 0, "delta": delta}]})
        if text["text"] == Spoken.CUT:
            return
        if text["text"] == Spoken.NO_JSON:
            yield "{"
    reason = "stop" if len(words) == len(kinds) + len(text["text"].split()) else "length"
    yield json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    usage = {"prompt_tokens": 7, "completion_tokens": len(words), "prompt_tokens_details": {"cached_tokens": 3}}
    yield json.dumps({"choices": [], "usage": usage})
    yield "[DONE]"


def _content(part):
    url = part[part["type"]].get("url", "")
    return base64.b64decode(url.removeprefix(_FRAME_FILE)) if url.startswith(_FRAME_FILE) else url.encode()


def _digest(text, system_prompt, content):
    return blake2b(repr((text, system_prompt)).encode() + content).digest()


def _logprob(seed, token):
    is_likely = token in {encoder()(letter)[0] for letter in _LIKELY}
    return -seed[token % len(seed)] / 256 - (1 if is_likely else 20)
