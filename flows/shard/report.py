"""The report of one shard."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reelabel.coverage import count_reasons
from tasks.domain import views_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flows.shard.answering import ShardOutcome
    from reelabel.sampling.options import Sampling
    from tasks.domain import Failure, JobResult, View
    from tasks.plans.extracted import ExtractedShard
    from tasks.results.write import EndedShard, RunKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """Counts and times of one shard.

    Attributes:
        videos_extracted: Number of frame files that were made; `videos_cached` were in the cache.
        videos_remade: Number of extracted videos whose cached files must not be used.
        stage_ms: Milliseconds by stage, summed over videos and jobs.
        prompt_tokens: Prompt tokens of its answers; `cached_tokens` of them came from the prefix cache.
        between_s: Start and end of its extraction and inference, in seconds of Unix time.
        coverage: Number of videos answered from keyframes (`videos`), and, by reason, of those that keyframes may
            not cover.
    """

    index: int
    labels: int
    failures: int
    videos_extracted: int
    videos_cached: int
    videos_remade: int
    stage_ms: dict[str, float]
    prompt_tokens: int
    cached_tokens: int
    between_s: dict[str, tuple[float, float]]
    coverage: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return one line."""
        videos = f"{self.videos_extracted} videos extracted, {self.videos_cached} from the cache"
        seconds = ", ".join(f"{stage} {ms / 1e3:.2f}" for stage, ms in self.stage_ms.items())
        return f"Shard {self.index}: {self.labels} labels, {self.failures} failures; {videos}; seconds: {seconds}."


def make_shard_report(
    extracted: ExtractedShard, outcomes: ShardOutcome, ended: EndedShard, sampling: Sampling
) -> ShardReport:
    """Return the report of a shard, before its rows are written.

    `outcomes` are those of its jobs as they were asked: of chunks where they were cut.
    """
    videos, answers = outcomes.videos, [result.answer for result in outcomes.results]
    # By frame file, which several passes of a video may share.
    extracted_keys = {video.identity.key for video in videos if not video.was_cached}
    return ShardReport(
        index=outcomes.index,
        labels=len(ended.results),
        failures=len(ended.failures),
        videos_extracted=len(extracted_keys),
        videos_cached=len({video.identity.key for video in videos} - extracted_keys),
        videos_remade=sum(bool(video.remade) for video in videos),
        stage_ms=stage_ms_of(outcomes) | {"database": 0.0},
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        cached_tokens=sum(answer.cached_tokens for answer in answers),
        between_s={"extract": extracted.between_s, "infer": (outcomes.began_s, time.time())},
        coverage=_count_coverage(outcomes.results, sampling),
    )


def stage_ms_of(outcome: ShardOutcome) -> dict[str, float]:
    """Return the milliseconds that answering jobs took by step, summed over what was done at the same time."""
    spent = [video.provenance for video in outcome.videos]
    answers = [result.answer for result in outcome.results]
    embed_ms = sum(each.embed_ms for each in spent)
    return {
        "fetch": sum(each.fetch_ms for each in spent),
        "decode": sum(each.decode_ms for each in spent),
        **({"embed": embed_ms} if embed_ms else {}),
        "cache write": sum(each.cache_write_ms for each in spent),
        "cache read": sum(outcome.read_ms.values()),
        "preprocess": sum(answer.preprocess_ms for answer in answers),
        "inference": sum(answer.inference_ms for answer in answers),
    }


def _count_coverage(results: Iterable[JobResult], sampling: Sampling) -> dict[str, int]:
    """Count the coverage of segments answered from keyframes, except for tasks that keyframes always suit."""
    by_keyframes = [each for each in results if each.provenance.sampler == "keyframes"]
    shown = {views_of(each.job, sampling): each.provenance.coverage for each in by_keyframes}
    return count_reasons(coverage for views, coverage in shown.items() if any(_by_video(view) for view in views))


def _by_video(view: View) -> bool:
    """Return whether keyframes were shown because of what the video is, and not of what the job is."""
    return view.shown not in ("keyframes", "image")


def log_failures(failures: Sequence[Failure], run: RunKey) -> None:
    """Log the failures of a shard, once its rows are written."""
    for failure in failures:
        known = {"run": str(run.run_id), "job": failure.job.job_id, "code": failure.code}
        logging.getLogger("reelabel").warning("Job %s failed: %s", failure.job.job_id, failure.message, extra=known)
