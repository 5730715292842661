"""An engine in a child process, which loads the model once and answers several batches at a time."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reelabel.digest import json_digest
from reelabel.errors import JobError
from reelabel.unexpected import failing_alone
from reelabel_engine import PROTOCOL
from reelabel_engine.environment import cache_folders, engine_environment, find_python
from reelabel_engine.errors import InferenceError, ModelError
from reelabel_engine.protocol import (
    AskBatch,
    Batch,
    EngineConfig,
    EngineInfo,
    EngineTimes,
    LoadEngine,
    PreviewRequest,
    Question,
    QuestionReply,
    Rejected,
    RenderedPrompt,
    check,
    decode_reply,
    encode,
)
from tasks.domain import Answer
from tasks.model.model_process import START_TIMEOUT_S, ModelProcess
from tasks.model.prompts.words import read_words
from tasks.model.running_process import RunningProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.model.backend import Reply
    from tasks.model.warm_engines import WarmEngines

_LOG = logging.getLogger("reelabel")
# Variables that do not change what an engine loads; its GPUs are in the name of the file.
_HARMLESS = re.compile(
    r"(PREFECT|REELABEL|SSH|XDG|PYTEST|OTEL)_|(_|SHLVL|PWD|OLDPWD|COLUMNS|LINES|TERM|TMPDIR|CUDA_VISIBLE_DEVICES)$"
)


class EngineProcess(ModelProcess[EngineConfig]):
    """An engine in its own process; a context manager that shuts it down.

    `start` returns at once, so that loading overlaps the extraction of the first shards; `wait_ready`
    and `answer` block. Call `answer` from several threads to keep the engine busy: while it answers one batch,
    the others are rendered.
    """

    noun = "The engine"
    times = EngineTimes()

    def __init__(
        self,
        config: EngineConfig,
        *,
        warm: WarmEngines | None = None,
        fingerprint: str = "",
        **options: Any,  # noqa: ANN401 - as of a `ModelProcess`
    ) -> None:
        """Store the configuration; nothing is started yet.

        An engine is taken from `warm`, and left there; None starts and ends one each time. `fingerprint` distinguishes
        versions of the model and numbers of engines.
        """
        super().__init__(config, **options)
        self._warm, self._fingerprint = warm, fingerprint

    def _begin(self) -> RunningProcess:
        python = find_python(self._python)
        environment = engine_environment(self._config, python)
        load = LoadEngine(config=self._config)
        if self._warm:
            self._key = json_digest(
                {
                    "load": encode(LoadEngine(config=replace(self._config, devices=()))).hex(),
                    "protocol": PROTOCOL,
                    "fingerprint": self._fingerprint,
                    "command": [*(self._command or python.command)],
                    "versions": dict(python.versions),
                    "environment": {
                        name: environment[name] for name in sorted(environment) if not _HARMLESS.match(name)
                    },
                }
            )
            if kept := self._warm.take(self._key, self._gpus):
                folders = [self._log_path.parent, *cache_folders(environment)]
                return RunningProcess.adopt(kept, folders=folders, **self._process_options)
        return self._start(python, load, environment)

    def close(self) -> None:
        with self._lock:
            running = self._running
            if self._warm and self._warm.keep_s and running:
                self._is_closed, self._running = True, None
            else:
                running = None
        is_left = False
        try:
            is_left = running is not None and self._leave(running)
        finally:
            if running and not is_left:
                running.end("it was closed")
            super().close()

    def _leave(self, running: RunningProcess) -> bool:
        assert self._warm
        try:
            facts_path = self._warm.new_path(self._key, self._gpus)
        except OSError as error:
            _LOG.warning("The engine cannot be kept for the next run: %s.", error)
            return False
        return running.leave(self._warm.keep_s, facts_path)

    @property
    def _gpus(self) -> str:
        gpus = ",".join(self._config.devices) or os.environ.get("CUDA_VISIBLE_DEVICES") or "all"
        return re.sub(r"[^\w,]", "_", gpus)

    def wait_ready(self) -> EngineInfo:
        """Wait until a process has loaded the model, starting one if none runs."""
        info: EngineInfo = self._wait_loaded(self.ensure_running())
        return info

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch; replies are in the order of its questions. Raises as `ask`. Thread-safe."""
        failures = {index: failure for index, each in enumerate(batch.questions) if (failure := _failure_of(each))}
        valid = tuple(each for index, each in enumerate(batch.questions) if index not in failures)
        # Other orders of a question's choices are questions of the batch themselves.
        sent = batch.only(tuple(replace(each, permutations=()) for each in valid))
        found = self.ask(lambda number: AskBatch(number=number, batch=sent), count=len(valid)) if valid else []
        replies = iter(map(_reply_of, valid, found))
        return [failures.get(index) or next(replies) for index in range(len(batch.questions))]

    def ensure_running(self) -> RunningProcess:
        """Return the process that runs or loads; start one if none does.

        Raises:
            DiskFullError: It was lost because a disk is full.
            EngineClosedError: The engine was closed.
        """
        running = self._ensure_running()
        # One that never loaded would not load the next time either.
        if running.lost is None or running.info.exception():
            return running
        self._end_lost(running, running.lost)
        return self._ensure_running()

    def _note_times(self, times: EngineTimes) -> None:
        self.times += times


def _failure_of(question: Question) -> Rejected | None:
    try:
        with failing_alone("Sending the question to the engine", stage=InferenceError.stage):
            check(question)
    except JobError as error:
        return Rejected.of(error)
    return None


def _reply_of(question: Question, reply: QuestionReply) -> Reply:
    if isinstance(reply, Rejected):
        return reply
    words, chosen = None, max(range(len(reply.probabilities)), key=reply.probabilities.__getitem__, default=None)
    if not question.choices:
        try:
            words = read_words(
                question, reply.text, finish_reason=reply.finish_reason, output_tokens=reply.output_tokens
            )
        except JobError as error:
            return Rejected.of(error)
    return Answer(
        choice_index=chosen,
        probabilities=reply.probabilities,
        words=words,
        choice_mass=reply.choice_mass,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        preprocess_ms=reply.preprocess_ms,
        inference_ms=reply.inference_ms,
    )


def preview_prompt(request: PreviewRequest, *, python: Path | None = None) -> RenderedPrompt:
    """Render a question in a process that loads no weights; most of the seconds allowed go into importing vLLM.

    Raises:
        ConfigurationError: vLLM is not installed.
        ModelError: The model's processor cannot be loaded, or not within the timeout.
    """
    found, model = find_python(python), request.config.model
    try:
        finished = subprocess.run(  # noqa: S603 - our own module
            [found.path, "-P", "-m", "reelabel_engine.preview"],
            input=encode(request),
            env=engine_environment(request.config, found),
            capture_output=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"The processor of {model} did not load within {START_TIMEOUT_S:g} s.") from None
    rendered = None
    if not finished.returncode:
        with suppress(ValueError, RecursionError):  # the process, or what it imports, may print
            rendered = decode_reply(finished.stdout)
    if not isinstance(rendered, RenderedPrompt):
        lines = finished.stderr.decode(errors="replace").strip().splitlines()
        raise ModelError(f"Cannot load the processor of {model}: {(lines or ['its process died'])[-1]}")
    return rendered
