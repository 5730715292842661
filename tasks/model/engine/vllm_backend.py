"""The backend `vllm`: engines on this machine, each in a process of its own."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

from infra.doctor import Check
from reelabel.cores import usable_cores
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.optional import install_command
from reelabel_engine.devices import assign_gpus, extra_of_engines, gpu_memory_bytes, visible_gpus
from reelabel_engine.environment import ENGINE, engine_environment, find_python
from reelabel_engine.model_errors import find_advice
from reelabel_engine.protocol import Batch, EngineConfig, EngineInfo, EngineTimes
from tasks.domain import ONE_VIDEO, MediaCounts
from tasks.model.backend import Backend, InferenceBackend, Reply
from tasks.model.engine.live.model import EngineLiveModel
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.recovery import CrashingQuestions, RecoveringEngine
from tasks.model.identity import ModelInfo, max_frame_pixels, read_model_info, require_tokenizer
from tasks.model.pool import Pool
from tasks.model.prompts.thinking import render_ending, require_answer_first
from tasks.model.warm_engines import WarmEngines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infra.settings import Settings
    from tasks.live.model import LiveModel

# Rendering prompts takes a quarter of the cores, shared by all engines; each gets at most 8 processes.
_CORES_PER_RENDERER = 4
_MAX_RENDERERS = 8


def engine_config(
    model_info: ModelInfo,
    settings: Settings,
    *,
    devices: tuple[str, ...] = (),
    engines: int = 1,
    media: MediaCounts = ONE_VIDEO,
    live_sessions: int = 0,
) -> EngineConfig:
    """Return the configuration of one of several engines; `live_sessions` is the sum over all of them."""
    model = settings.model
    return EngineConfig(
        model=model_info.location,
        revision=model_info.revision,
        adapter=model_info.adapter,
        adapter_fingerprint=(model_info.adapter and model_info.identity.fingerprint) or "",
        dtype=model.dtype,
        tensor_parallel_size=model.tensor_parallel_size,
        devices=devices,
        render_processes=max(1, min(_MAX_RENDERERS, usable_cores() // _CORES_PER_RENDERER // engines)),
        video_pruning_rate=model.video_pruning_rate or 0.0,
        max_videos=media.videos,
        max_images=media.images,
        frames_as_images=not model_info.takes_videos,
        chat_template_args=model.chat_template_args,
        engine_args=model.engine_args,
        live_sessions=-(-live_sessions // engines),
    )


# The largest model of a family that leaves room for prompts, by the GiB of a GPU; the last one also suits a CPU.
_FITTING = {
    20: "Qwen/Qwen2.5-VL-7B-Instruct",
    10: "Qwen/Qwen2.5-VL-3B-Instruct",
    0: "Qwen/Qwen2-VL-2B-Instruct",
}


def _name_missing() -> str:
    gib = gpu_memory_bytes()[1] / 1024**3
    machine = f"this GPU of {gib:.0f} GiB" if gib else "this machine"
    fitting = next(model for least_gib, model in _FITTING.items() if gib >= least_gib)
    return (
        "No model is named; set REELABEL_MODEL_NAME, or name one for this run: --model, or model in a form. "
        f"For {machine}: `export REELABEL_MODEL_NAME={fitting}`."
    )


_TIMEOUT_S = 180
# Allocates on the device: without a GPU, vLLM for GPUs can be imported, but nothing else.
_IMPORT = (
    "import torch, vllm; from vllm.platforms import current_platform as on; torch.zeros(1, device=on.device_type); "
    "print(vllm.__version__, 'on torch', torch.__version__, end='')"
)


class VllmBackend(Backend):
    """Runs the model with vLLM: one engine, or several on their own GPUs."""

    name = "vllm"
    prunes_videos = True
    shows_several = True
    writes_words = True
    takes_hub_models = True
    takes_engine_args = True

    def model_info(self, name: str | None, settings: Settings) -> ModelInfo:
        named = name or settings.model.name
        if not named:
            raise ConfigurationError(_name_missing())
        return read_model_info(named, revision=settings.model.revision)

    def frames_as(self, model_info: ModelInfo, settings: Settings) -> Literal["video", "images"]:  # noqa: ARG002
        return "video" if model_info.takes_videos else "images"

    def open(self, model_info: ModelInfo, settings: Settings, *, media: MediaCounts = ONE_VIDEO) -> InferenceBackend:
        return _backend_on(_make_processes(model_info, settings, media=media))

    def open_live(
        self, model_info: ModelInfo, settings: Settings, *, sessions: int
    ) -> tuple[InferenceBackend, LiveModel]:
        if settings.model.video_pruning_rate:
            raise ConfigurationError(
                "Live sessions reuse what the model has read, which video_pruning_rate prevents; leave it out."
            )
        engines = _make_processes(model_info, settings, live_sessions=sessions)
        # As a run with the same settings shows them: some models scale frames by how many there are.
        frame_px = max_frame_pixels(model_info, settings, num_frames=settings.sampling.num_frames)
        return _backend_on(engines), EngineLiveModel(engines, model_info, max_frame_px=frame_px)

    def check(self, model_info: ModelInfo, settings: Settings) -> None:
        engine_environment(engine_config(model_info, settings), find_python(settings.model.python))
        _require_usable(model_info, settings)

    def diagnose(self, settings: Settings) -> Iterator[Check]:
        try:
            model_info = self.model_info(None, settings)
            yield Check(
                name="model",
                ok=True,
                detail=f"{model_info.identity.name} at {model_info.adapter or model_info.location}",
            )
        except ReelabelError as error:
            yield Check(name="model", ok=False, detail=error.code, advice=error.message)
        vllm = _check_vllm(settings)
        if not vllm.ok and settings.run.executor == "remote":
            vllm = vllm._replace(ok=True, advice=f"{vllm.advice} Only machines with infer workers need it.")
        yield vllm


def _make_processes(
    model_info: ModelInfo, settings: Settings, *, media: MediaCounts = ONE_VIDEO, live_sessions: int = 0
) -> list[EngineProcess]:
    model = settings.model
    # A thread of this process writes lines of JSON, so that it must not end before the engine.
    keep_s = 0.0 if live_sessions or settings.log.format == "json" else model.keep_warm_s
    _require_usable(model_info, settings)
    gpus_each = model.tensor_parallel_size * cast("int", model.engine_args.get("pipeline_parallel_size", 1))
    shares = assign_gpus(visible_gpus(), engines=model.engines, tensor_parallel_size=gpus_each)
    return [
        EngineProcess(
            engine_config(
                model_info, settings, devices=devices, engines=len(shares), media=media, live_sessions=live_sessions
            ),
            log_path=settings.home / "logs" / ("engine.log" if len(shares) == 1 else f"engine-{number}.log"),
            log_as_json=settings.log.format == "json",
            python=model.python,
            warm=WarmEngines.of(settings.home, keep_s),
            fingerprint=f"{len(shares)} of {model_info.identity.model_dump_json()}",
        )
        for number, devices in enumerate(shares)
    ]


def _require_usable(model_info: ModelInfo, settings: Settings) -> None:
    require_tokenizer(model_info)
    require_answer_first(model_info.identity.name, render_ending(model_info, settings.model.chat_template_args))


class EnginePool(Pool[InferenceBackend], InferenceBackend):
    """Engines of one model; one that is lost restarts while the others continue."""

    @property
    def engines(self) -> int:
        return sum(member.engines for member in self._members)

    @property
    def times(self) -> EngineTimes:
        return sum((member.times for member in self._members), EngineTimes())

    def wait_ready(self) -> EngineInfo:
        infos = [member.wait_ready() for member in self._members]
        return replace(
            infos[0],
            gpus=sum(info.gpus for info in infos),
            max_model_len=min(info.max_model_len for info in infos),
            start_ms=max(info.start_ms for info in infos),
        )

    def answer(self, batch: Batch) -> list[Reply]:
        return self._request(lambda engine: engine.answer(batch))


def _backend_on(processes: Sequence[EngineProcess]) -> InferenceBackend:
    crashing = CrashingQuestions()
    engines = [RecoveringEngine(process, crashing=crashing) for process in processes]
    return engines[0] if len(engines) == 1 else EnginePool(engines)


def _check_vllm(settings: Settings) -> Check:
    try:
        python = find_python(settings.model.python)
        environment = engine_environment(EngineConfig(model=settings.model.name or ""), python)
    except ReelabelError as error:
        return Check(name="vllm", ok=False, detail=error.code, advice=error.message)
    # In the engine's own environment: only there can vLLM be imported on a CPU build of torch.
    command = [python.path, "-P", "-c", _IMPORT]
    try:
        found = subprocess.run(  # noqa: S603 - our own command
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Check(
            name="vllm",
            ok=False,
            detail=f"not imported within {_TIMEOUT_S} s",
            advice="The disk of its environment is slow, or a GPU hangs; see nvidia-smi and `dmesg`, then try again.",
        )
    if not found.returncode:
        return Check(name="vllm", ok=True, detail=f"{found.stdout}, in {python.path}")
    last_line = (found.stderr.strip().splitlines() or ["no error output"])[-1]
    known = find_advice(last_line)
    advice = (
        known or f"install it again: `{install_command(extra_of_engines(), of=ENGINE, again=True, python=python.path)}`"
    )
    return Check(name="vllm", ok=False, detail=last_line, advice=f"{advice[0].upper()}{advice[1:]}.")


VLLM = VllmBackend()
