"""Answers live sessions by a server; see `tasks.live.model.LiveModel`.

A server's API has no sessions: each question carries all that it sees, frames as images and the audio among them, and
nothing is prefilled.
"""

from __future__ import annotations

import base64
import io
import wave
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from reelabel_engine.errors import InferenceError
from reelabel_engine.live_items import AUDIO_HZ, AudioSpan, Item
from reelabel_engine.prompts import choice_tokens
from reelabel_engine.protocol import LiveDone, LiveQuery, LiveText
from tasks.live.model import AnswerPiece, LiveInfo, Prefix, Speech
from tasks.model.server.answers import Usage, logprobs_request, read_logprobs, score
from tasks.model.server.backend import refuse_special_tokens
from tasks.model.server.client import ServerClient
from tasks.model.server.frame_transport import encode_image

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from infra.settings import ServerSettings
    from tasks.model.identity import ModelInfo

_SAMPLE_BYTES = 2


class ServerLiveModel:
    """Live sessions by a server; thread-safe."""

    def __init__(
        self,
        settings: ServerSettings,
        model_info: ModelInfo,
        *,
        max_frame_px: int,
        encode: Callable[[str], list[int]] | None = None,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings, self._model_info, self._max_frame_px = settings, model_info, max_frame_px
        self._client = ServerClient(settings, template_args=template_args)
        self._encode = encode or self._client.tokenize
        self._model = settings.model
        self._sessions: set[str] = set()
        self._encoded: WeakKeyDictionary[Item, list[dict[str, Any]]] = WeakKeyDictionary()

    def wait_ready(self) -> LiveInfo:
        self._model = self._client.find_model().id
        return LiveInfo(
            model=self._model_info.identity.name,
            size_multiple_px=self._model_info.size_multiple_px,
            max_frame_px=self._max_frame_px,
            takes_audio=self._settings.audio_input,
            produces_speech=self._settings.voice is not None,
            versions={},
        )

    def open(self, session: str) -> None:
        if session in self._sessions:
            raise ValueError(f"There is a session {session} already.")
        self._sessions.add(session)

    def prefill(self, goal: Sequence[Prefix]) -> None:
        """Do nothing: a server reads what a question carries."""

    def ask(self, prefix: Prefix, query: LiveQuery) -> Generator[AnswerPiece, None, None]:
        refuse_special_tokens(self._encode, query.text, prefix.system_prompt)
        system = [] if prefix.system_prompt is None else [{"role": "system", "content": prefix.system_prompt}]
        texts = [*chain.from_iterable(query.turns), query.text]
        content = [*self._parts_of(prefix), {"type": "text", "text": texts[0]}]
        roles = cycle(("assistant", "user"))
        turns = [{"role": role, "content": text} for role, text in zip(roles, texts[1:], strict=False)]
        body = {"model": self._model, "messages": [*system, {"role": "user", "content": content}, *turns]}
        if query.choices:
            yield self._choose(body, query)
        else:
            yield from self._write(body, query)

    def cancel(self, session: str) -> None:
        """Do nothing: the connection is closed at the next piece of the answer."""

    def close_session(self, session: str) -> None:
        self._sessions.discard(session)

    def close(self) -> None:
        self._client.close()

    def _parts_of(self, prefix: Prefix) -> Iterator[dict[str, Any]]:
        if prefix.session not in self._sessions:
            raise InferenceError("The session has ended.")
        for item in prefix.items:
            parts = self._encoded.get(item) or _encode(item)
            self._encoded[item] = parts
            yield from parts

    def _choose(self, body: dict[str, Any], query: LiveQuery) -> LiveDone:
        tokens = choice_tokens(query.choices, scoring=query.scoring, encode=self._encode)
        completion = self._client.complete(
            body | {"max_tokens": 1, "temperature": 0} | logprobs_request(tokens, exact=False)
        )
        probabilities = score(tokens, read_logprobs(completion, self._encode)).probabilities
        return _done(completion.usage, output_tokens=1, probabilities=probabilities)

    def _write(self, body: dict[str, Any], query: LiveQuery) -> Iterator[AnswerPiece]:
        body |= {"max_tokens": query.max_tokens, "temperature": query.temperature, "top_p": query.top_p}
        body |= {} if query.seed is None else {"seed": query.seed}
        if query.produces_speech:
            voice = query.voice or self._settings.voice
            body |= {"modalities": ["text", "audio"], "audio": {"voice": voice, "format": "pcm16"}}
        reason: str | None = None
        usage = None
        for chunk in self._client.stream(body):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                if text := (choice.content or "") + (choice.transcript or ""):
                    yield LiveText(text=text)
                if data := _speech(choice.speech or ""):
                    yield Speech(data=data)
                reason = choice.finish_reason or reason
        if reason is None:
            raise InferenceError(f"The server at {self._client.url} has ended its answer early.")
        tokens = (usage or Usage()).completion_tokens or 0
        yield _done(usage, output_tokens=tokens, finish_reason="length" if reason == "length" else "stop")


def _done(usage: Usage | None, **values: Any) -> LiveDone:  # noqa: ANN401 - of `LiveDone`
    counted = usage or Usage()
    return LiveDone(prompt_tokens=counted.prompt_tokens or 0, cached_tokens=counted.cached_tokens or 0, **values)


def _speech(encoded: str) -> bytes:
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:  # also if it is not ASCII
        raise InferenceError("The server's audio is not valid base64.") from None
    if len(data) % _SAMPLE_BYTES:
        raise InferenceError(f"The server's audio has {len(data):,} bytes, which are no whole samples of 16 bits.")
    return data


def _encode(item: Item) -> list[dict[str, Any]]:
    if not isinstance(item, AudioSpan):
        urls = [f"data:image/png;base64,{encode_image(image)}" for image in item.images[: item.frames]]
        return [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(_SAMPLE_BYTES)
        written.setframerate(AUDIO_HZ)
        written.writeframes(item.samples.astype("<i2").tobytes())
    data = base64.b64encode(file.getvalue()).decode()
    return [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]
