"""`reelabel frames --compare vllm`: the frames of vLLM's own loader, beside ours."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from flows.cli.console import ERRORS, print_line
from flows.run.request import QuestionOptions
from flows.run.spec import make_spec
from infra.settings import SamplingOptions
from reelabel.errors import ConfigurationError
from reelabel.frames.fetch import stat_video
from reelabel.integrations.vllm.comparison import ask_loaders, compare, reproduces_loader
from reelabel.sampling.registry import NATIVE, samplers
from reelabel.sources.object_info import split_member
from reelabel.text import pluralize
from reelabel_engine.environment import engine_environment, find_python
from tasks.frame_cache.pool import video_limits, video_store
from tasks.model.engine.vllm_backend import engine_config

if TYPE_CHECKING:
    from infra.settings import Settings
    from reelabel.integrations.vllm.comparison import Comparison
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from tasks.model.identity import ModelCard


def sampling_to_compare(card: ModelCard, settings: Settings, asked: SamplingOptions) -> Sampling:
    """Return the sampling to compare: the one asked for, or the model's own where the usual one is not vLLM's."""
    sampling = make_spec(card, settings, QuestionOptions(sampling=asked)).sampling
    if reproduces_loader(sampling.sampler):
        return sampling
    if asked.sampler:
        able = ", ".join(name for name in samplers() if reproduces_loader(name))
        raise ConfigurationError(
            f"No loader of vLLM samples as {sampling.sampler}; compare one of these with --sampler: {able}."
        )
    own = SamplingOptions(**asked.model_dump(exclude_none=True) | {"sampler": NATIVE})
    return make_spec(card, settings, QuestionOptions(sampling=own)).sampling


def compare_with_vllm(
    video: str, frames: SampledFrames, card: ModelCard, settings: Settings, sampling: Sampling
) -> Comparison:
    """Let vLLM's own loader read a video, and compare its frames with ours."""
    python = find_python(settings.model.python)
    environment = engine_environment(engine_config(card, settings), python)
    objects = video_store(settings)
    info = stat_video(objects, video, allow_roots=settings.extract.allow_roots)
    with TemporaryDirectory(prefix="reelabel-compare-") as folder, ERRORS.status("Asking vLLM's loader"):
        path = None if split_member(video) else objects.local_path(video)
        if path is None:
            path = Path(folder) / "video"
            objects.download(
                video, path, fingerprint=info.fingerprint, max_bytes=video_limits(settings).max_video_bytes
            )
        [choice] = ask_loaders(
            [(path.absolute(), sampling)],
            environment=environment,
            timeout_s=settings.model.start_timeout_s,
            python=python.path,
        )
    return compare(frames, choice, sampling)


def comparison_as_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values."""
    return {
        "loader": asdict(found.choice),
        "frames": [asdict(frame) for frame in found.frames],
        "reasons": found.reasons,
    }


def print_comparison(found: Comparison, frames: SampledFrames) -> None:
    """Print both lists side by side, each frame that only one has with its reason."""
    choice = found.choice
    start_s = float(frames.time_s.min()) if frames.first_ms is None else frames.first_ms / 1e3
    time_s = dict(zip(frames.frame_index.tolist(), (frames.time_s - start_s).tolist(), strict=True))
    same = sum(not frame.reasons for frame in found.frames)
    print_line(
        f"vLLM's loader {choice.loader} counts {pluralize(choice.total_frames, 'frame')} at {choice.fps:g} fps; "
        f"{same:,} of {pluralize(len(found.frames), 'chosen frame')} {'is' if same == 1 else 'are'} shown by both."
    )
    if choice.refusal:
        print_line(f"It refuses the video: {choice.refusal}")
    print_line("   frame    Reelabel        vLLM")
    for frame in found.frames:
        ours = _cell(frame.ours, time_s.get(frame.position))
        theirs = _cell(frame.theirs, frame.position / choice.fps if choice.fps else None)
        print_line(f"  {frame.position:>6}  {ours:>10}  {theirs:>10}  {'; '.join(frame.reasons)}".rstrip())


def _cell(times: int, at_s: float | None) -> str:
    if not times:
        return "-"
    repeats = f"{times}x " if times > 1 else ""
    return repeats + ("shown" if at_s is None else f"{at_s:.3f} s")
