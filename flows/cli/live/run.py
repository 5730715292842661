"""`reelabel live`: sends a source's frames and questions, and prints the answers and frame statistics."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated

import typer

from flows.cli.console import print_line, print_notice
from flows.cli.live.source import Source, SourceAudio, SourceFrame
from flows.cli.options import example
from infra.settings import Settings, load_settings
from infra.signals import EXIT_CODE
from reelabel.errors import ConfigurationError
from reelabel.live import LiveClient
from reelabel.text import escape_controls, pluralize
from tasks.live.events import EVENTS, ErrorEvent, Event, FrameAck, Notice, ResponseDone, SessionCreated
from tasks.live.messages import ProtocolError, parse_message

_EVERY_S = 5.0
# Maximum wait for answers after the end of the source.
_ANSWERS_S = 120.0
_STOP_S = 2.0  # the same at Ctrl-C


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    source: str
    questions: tuple[str, ...]
    choices: tuple[str, ...] | None
    every_s: float | None  # seconds between questions; None: at the end of a file, every 5 s of a stream
    fps: float
    limit_s: float | None
    audio: bool | None  # whether to send the source's audio; None sends it if there is any and the model accepts it
    window_s: float | None  # seconds that a question sees besides the first frames; None: the server's default
    url: str | None
    as_json: bool


@example('reelabel live /dev/video0 --ask "Is the door open?" --choices yes,no --every 5')
def live(  # noqa: PLR0913 - a command's options
    source: Annotated[
        str, typer.Argument(help="A video file, played in real time; rtsp://, an HLS address, or /dev/video0.")
    ],
    *,
    ask: Annotated[list[str], typer.Option(help="A question; repeatable.")],
    choices: Annotated[
        str | None,
        typer.Option(help="Choices of the questions, separated by bars or commas. Default: answers in words."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds between questions. Default: at the end of a file, every 5 s of a stream."),
    ] = None,
    fps: Annotated[float, typer.Option(min=0.01, max=30, help="Maximum frames per second to send.")] = 2.0,
    limit_s: Annotated[float | None, typer.Option(min=0, help="End after this many seconds. Default: never.")] = None,
    audio: Annotated[
        bool | None,
        typer.Option("--audio/--no-audio", help="Send the source's audio. Default: if the model accepts audio."),
    ] = None,
    window_s: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Ask about this many of the last seconds, and the first four frames. Default: the server's window.",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address of `reelabel serve`. Default: that of serve.host and serve.port.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per answer.")] = False,
) -> None:
    """Ask questions about a camera, a stream or a file in real time.

    Exits with 1 if a question gets no answer.
    """
    options = LiveOptions(
        source=source,
        questions=tuple(ask),
        choices=None if choices is None else tuple(map(str.strip, choices.split("|" if "|" in choices else ","))),
        every_s=every,
        fps=fps,
        limit_s=limit_s,
        audio=audio,
        window_s=window_s,
        url=url,
        as_json=json,
    )
    raise typer.Exit(run_live(options))


def run_live(options: LiveOptions) -> int:
    """Run a session; return the exit code: 1 if a question has no answer."""
    _check(options)
    settings = load_settings()
    token = settings.serve.token.get_secret_value() if settings.serve.token else None
    config = {"window_s": options.window_s} if options.window_s else {}
    with Source(options.source, fps=options.fps) as source, asyncio.Runner() as runner:
        conversation = _Conversation(
            options, source, LiveClient(options.url or _url_of(settings), token=token, **config)
        )
        is_stopped = False
        try:
            runner.run(conversation.run())
        except KeyboardInterrupt:
            is_stopped = True
            runner.run(conversation.stop())
        finally:
            source.stop()
            runner.run(conversation.close())
    conversation.summarize()
    if is_stopped:
        return EXIT_CODE
    return 1 if conversation.questions_sent > conversation.answered else 0


def _check(options: LiveOptions) -> None:
    for question in options.questions:
        query = {"type": "video.query", "text": question, "choices": options.choices}
        try:
            parse_message(json.dumps(query))
        except ProtocolError as error:
            fault = error.message.removeprefix("video.query: ")
            raise ConfigurationError(f"The question or its choices cannot be asked: {fault}") from None


def _sends_audio(options: LiveOptions, source: Source, session: SessionCreated) -> bool:
    if options.audio and not source.has_audio:
        raise ConfigurationError("The source has no audio; leave out --audio.")
    if options.audio and not session.takes_audio:
        raise ConfigurationError(
            f"The model {escape_controls(session.model)} accepts no audio; leave out --audio, or load one on the "
            f"server that does."
        )
    return options.audio is not False and source.has_audio and session.takes_audio


def _url_of(settings: Settings) -> str:
    host = settings.serve.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.serve.port}"


@dataclass(eq=False)
class _Conversation:
    options: LiveOptions
    source: Source
    client: LiveClient
    sent: int = 0
    questions_sent: int = 0
    answered: int = 0
    audio_s: float = 0.0
    acks: Counter[str] = field(default_factory=Counter)
    ack_ms: list[float] = field(default_factory=list)
    first_token_ms: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    _sent_at: dict[str, float] = field(default_factory=dict)
    _questions: dict[str, str] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        await self.client.__aenter__()
        session = SessionCreated.model_validate(self.client.session)
        if not self.options.as_json:
            print_notice(f"Session {session.session_id}: {escape_controls(session.model)}.")
        sending = asyncio.create_task(self._send_all(with_audio=_sends_audio(self.options, self.source, session)))
        listening = asyncio.create_task(self._listen())
        self._tasks = [sending, listening]
        await sending
        await self.client.finish()
        await asyncio.wait([listening], timeout=_ANSWERS_S)
        if not listening.done():
            print_notice("Not all questions were answered in time.")
            return
        listening.result()
        if self.client.is_lost:
            print_notice("The connection was lost and could not be resumed in time.")

    async def stop(self) -> None:
        """Stop sending, and end the session after a moment for pending answers."""
        if self._tasks:
            sending, listening = self._tasks
            sending.cancel()
            await self.client.finish()
            await asyncio.wait([listening], timeout=_STOP_S)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.client.close()

    async def _send_all(self, *, with_audio: bool) -> None:
        options = self.options
        every_s = options.every_s or (None if self.source.is_file else _EVERY_S)
        next_s = every_s or 0.0
        parts = self.source.parts(with_audio=with_audio)
        # A source waits until its next part is due.
        while part := await asyncio.to_thread(next, parts, None):
            if self._tasks[1].done() or (options.limit_s is not None and part.time_s > options.limit_s):
                break
            if isinstance(part, SourceAudio):
                if await self.client.send_audio(part.samples.astype("<i2").tobytes(), time_s=part.time_s):
                    self.audio_s += part.end_s - part.time_s
                continue
            await self._send_frame(part)
            if options.limit_s is not None and self.sent == 1:
                # Even while it waits for a frame.
                asyncio.get_running_loop().call_later(options.limit_s, self.source.stop)
            if every_s is not None and part.time_s >= next_s:
                next_s += every_s * (1 + (part.time_s - next_s) // every_s)
                await self._ask()
        await asyncio.to_thread(parts.close)  # waits for the thread that decodes
        if not self.sent and not self._tasks[1].done():
            raise ConfigurationError("The source has no frames to send; use another one.")
        if not self.questions_sent:
            await self._ask()

    async def _send_frame(self, frame: SourceFrame) -> None:
        frame_id, self.sent = str(self.sent), self.sent + 1
        self._sent_at[frame_id] = time.monotonic()
        if not await self.client.send_frame(frame.jpeg, frame_id=frame_id, time_s=frame.time_s):
            del self._sent_at[frame_id]
            self.acks["not sent"] += 1

    async def _ask(self) -> None:
        choices = {"choices": list(self.options.choices)} if self.options.choices else {}
        for question in self.options.questions:
            query_id, self.questions_sent = f"q{self.questions_sent}", self.questions_sent + 1
            self._questions[query_id] = question
            await self.client.ask(question, query_id=query_id, **choices)

    async def _listen(self) -> None:
        async for event in self.client:
            event.pop("data", None)
            self._handle(EVENTS.validate_python(event))

    def _handle(self, event: Event) -> None:
        match event:
            case FrameAck():
                self.acks[event.status] += 1
                if (sent_s := self._sent_at.pop(event.frame_id or "", None)) is not None:
                    self.ack_ms.append((time.monotonic() - sent_s) * 1e3)
            case ResponseDone():
                self.answered += 1
                self.first_token_ms.append(event.first_token_ms or event.total_ms)
                self.total_ms.append(event.total_ms)
                self._print_answer(event)
            case ErrorEvent():
                if event.frame_id is not None:
                    self._sent_at.pop(event.frame_id, None)
                    self.acks["refused"] += 1
                print_notice(f"{event.code}: {escape_controls(event.message)}")
            case Notice():
                print_notice(escape_controls(event.message))
            case SessionCreated():
                print_notice("The connection was lost; the session continues.")

    def _print_answer(self, done: ResponseDone) -> None:
        if self.options.as_json:
            print_line(done.model_dump_json())
            return
        question = self._questions.get(done.query_id or "", "")
        share = "" if done.probabilities is None or done.choice is None else f" ({done.probabilities[done.choice]:.3f})"
        audio = f"{done.audio_s:.1f} s of audio, " if done.audio_s else ""
        print_line(f"{done.last_frame_s:.1f} s  {escape_controls(question)}  {escape_controls(done.text)}{share}")
        print_line(
            f"  first token {done.first_token_ms or done.total_ms:.0f} ms, whole answer {done.total_ms:.0f} ms; "
            f"{pluralize(done.frames_used, 'frame')}, {audio}{pluralize(done.prompt_tokens, 'token')}, "
            f"{done.cached_tokens:,} of them prefilled"
        )

    def summarize(self) -> None:
        if self.options.as_json:
            return
        names = {"kept": "kept", "similar": "similar", "evicted": "too late"}
        names |= {"refused": "refused", "not sent": "not sent"}
        acks = ", ".join(f"{self.acks[each]:,} {name}" for each, name in names.items() if self.acks[each])
        waited = f"; acknowledged after {median(self.ack_ms):.0f} ms (median)" if self.ack_ms else ""
        print_line(f"{pluralize(self.sent, 'frame')}: {acks or 'none acknowledged'}{waited}.")
        if self.audio_s:
            print_line(f"{self.audio_s:.1f} s of audio sent.")
        if self.total_ms:
            print_line(
                f"{self.answered:,} of {pluralize(self.questions_sent, 'question')} answered: first token after "
                f"{median(self.first_token_ms):.0f} ms, whole answer after {median(self.total_ms):.0f} ms (medians)."
            )
        elif self.questions_sent:
            print_line(f"None of {pluralize(self.questions_sent, 'question')} answered.")
        if self.client.resumed:
            print_line(f"The connection was lost and resumed {pluralize(self.client.resumed, 'time')}.")
