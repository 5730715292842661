"""The contenders of one model on one set of clips, and their measurement."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.engine.sweep import CHOSEN, Candidate, Requests, sweep
from benchmarks.pipeline.bare_engine import BareEngine
from benchmarks.pipeline.contender import measure
from benchmarks.pipeline.extraction import ExtractionOnly, Extractor
from benchmarks.pipeline.flow_run import FlowRun
from benchmarks.pipeline.isolated import Isolated
from benchmarks.pipeline.llm_chat import LlmChat
from benchmarks.pipeline.targets import CEILING, COLD, EXTRACTION, KEYFRAMES, UNIFORM, WARM, check_targets
from benchmarks.pipeline.utilization import CpuUtilization
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs, write_manifest
from flows.run.spec import make_spec
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.s3 import sign_url
from reelabel_engine.environment import engine_environment
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.cores import Cores
    from benchmarks.pipeline.contender import Contender, ContenderResult
    from benchmarks.pipeline.targets import Target
    from infra.settings import Settings

# The benchmark `engine` measures more; these differ the most.
_CEILING_CANDIDATES = (
    Candidate(name=CHOSEN),
    Candidate(
        name="64 prompts in steps of 8,192 tokens", arguments={"max_num_batched_tokens": 8192, "max_num_seqs": 64}
    ),
    Candidate(name="one prompt per step", arguments={"max_num_batched_tokens": 8192, "max_num_seqs": 1}),
)
_SWEEP_REQUESTS = 32
_FEW_JOBS = 500
_SMALL_SHARD_JOBS = 50  # so that few jobs still make several shards
_SIGNED_S = 24 * 3600
_MAX_CHAT_JOBS = 400  # vLLM's own loader would take very long for all


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """Report of one model.

    Attributes:
        ceiling_settings: Name of the settings with which the engine alone was the fastest.
    """

    name: str
    jobs: int
    videos: int
    ceiling_settings: str
    results: list[ContenderResult] = field(repr=False)
    targets: list[Target] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the comparisons of all models share.

    Attributes:
        settings: Settings of running services.
        clips: Paths of the videos; the first ones are for the warm-up.
        questions: Questions per video.
        rounds: Passes of each contender.
    """

    settings: Settings
    cores: Cores
    clips: Sequence[Path] = field(repr=False)
    questions: int
    rounds: int

    def measure(self, name: str, model: Path, *, warm_share: float, on_progress: Callable[[str], None]) -> ModelResult:
        """Measure every contender with one model.

        Args:
            name: Name of the model in the report, on S3 and in the database.
            model: Model folder.
            warm_share: Share of the ceiling that a warm cache should reach.
            on_progress: Called with a description of each step.
        """
        settings = self._settings_of(model)
        workload = self._workload(name, settings)
        root_uri = f"{settings.store.uri}/{name}"
        self._upload(workload, settings, root_uri)
        fastest = self._fastest(workload, on_progress)
        with CpuUtilization(self.cores) as utilization:
            contenders = self._contenders(workload, settings, root_uri, fastest)
            results = measure(contenders, rounds=self.rounds, utilization=utilization, on_progress=on_progress)
        return ModelResult(
            name=name,
            jobs=len(workload.jobs),
            videos=len(workload.videos),
            ceiling_settings=fastest.name,
            results=results,
            targets=check_targets(
                {result.contender: result for result in results},
                jobs_per_video=self.questions,
                warm_share=warm_share,
            ),
        )

    def _settings_of(self, model: Path) -> Settings:
        # In float32, answers do not depend on the batch in which they are computed.
        chosen = self.settings.model.model_copy(update={"name": str(model), "dtype": "float32"})
        jobs = self.questions * (len(self.clips) - WARM_UP_CLIPS)
        shard = self.settings.shard
        if jobs < _FEW_JOBS:
            shard = shard.model_copy(update={"target_jobs": _SMALL_SHARD_JOBS})
        return self.settings.model_copy(update={"model": chosen, "shard": shard})

    def _workload(self, name: str, settings: Settings) -> Workload:
        card = read_model_card(str(settings.model.name))
        return Workload(
            name=name,
            engine=engine_config(card, settings),
            spec=make_spec(card, settings),
            jobs=make_jobs(self.clips[WARM_UP_CLIPS:], questions_per_video=self.questions),
            warm_up=make_jobs(self.clips[:WARM_UP_CLIPS], questions_per_video=1),
        )

    def _upload(self, workload: Workload, settings: Settings, root_uri: str) -> None:
        objects = ObjectStore(settings.store)
        for path in map(Path, workload.videos):
            objects.replace(f"{root_uri}/{path.name}", path.read_bytes())
        with TemporaryDirectory(prefix="reelabel-") as folder:
            manifest = Path(folder) / "manifest.parquet"
            write_manifest(workload.jobs, manifest, root_uri=root_uri)
            objects.replace(f"{root_uri}/manifest.parquet", manifest.read_bytes())

    def _fastest(self, workload: Workload, on_progress: Callable[[str], None]) -> Candidate:
        """Find the settings with which the engine alone is the fastest."""
        requests = Requests(
            config=workload.engine,
            count=min(_SWEEP_REQUESTS, len(workload.jobs)),
            side_px=isqrt(workload.engine.max_pixels),
            rounds=2,
        )
        swept = sweep(
            requests,
            _CEILING_CANDIDATES,
            cores=tuple(sorted(self.cores.engine)),
            on_candidate=lambda candidate: on_progress(f"ceiling: trying {candidate.name}"),
        )
        return swept.best.candidate

    def _contenders(
        self, workload: Workload, settings: Settings, root_uri: str, fastest: Candidate
    ) -> dict[str, Contender]:
        """Return the contenders in the order of a round: the cold one leaves its frames for the warm one."""
        return {
            CEILING: self._ceiling(workload, fastest),
            EXTRACTION: self._extraction(workload, settings, root_uri),
            COLD: self._flow(workload, settings, root_uri, "cold"),
            WARM: self._flow(workload, settings, root_uri, "warm"),
            UNIFORM: self._chat(workload, settings, root_uri, "opencv"),
            KEYFRAMES: self._chat(workload, settings, root_uri, "pyav_keyframes"),
        }

    def _ceiling(self, workload: Workload, fastest: Candidate) -> Contender:
        environment = engine_environment(workload.engine) | fastest.environment
        engine = BareEngine(workload=workload, arguments=fastest.arguments)
        return self._isolated(engine, environment, self.cores.engine)

    def _extraction(self, workload: Workload, settings: Settings, root_uri: str) -> Contender:
        extractor = Extractor(
            sampling=workload.spec.sampling,
            store=settings.store,
            root_uri=f"{root_uri}/extracted",
            processes=settings.extract.processes,
        )
        videos = [f"{root_uri}/{Path(path).name}" for path in workload.videos]
        return self._isolated(ExtractionOnly(extractor=extractor, videos=videos), os.environ, self.cores.host)

    def _flow(self, workload: Workload, settings: Settings, root_uri: str, name: str) -> Contender:
        return FlowRun(
            workload=workload,
            settings=settings,
            manifest_uri=f"{root_uri}/manifest.parquet",
            cache_uri=f"{root_uri}/cache",
            name=f"{workload.name} {name}",
            cores=self.cores,
        )

    def _chat(self, workload: Workload, settings: Settings, root_uri: str, loader: str) -> Contender:
        outside = self.cores.engine_variables | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        environment = engine_environment(workload.engine) | outside | _trusting(settings.store.ca_file)
        sign = partial(sign_url, settings.store, valid_s=_SIGNED_S)
        chat = LlmChat(
            workload=workload,
            loader=loader,
            cores=self.cores,
            urls={path: sign(f"{root_uri}/{Path(path).name}") for path in workload.videos},
            max_jobs=_MAX_CHAT_JOBS,
        )
        return self._isolated(chat, environment, self.cores.host)

    def _isolated(self, contender: Contender, environment: Mapping[str, str], cores: frozenset[int]) -> Contender:
        log_path = self.settings.home / "logs" / f"{type(contender).__name__.lower()}.log"
        return Isolated(contender, environment=environment, cores=cores, log_path=log_path)


def _trusting(authority: Path | None) -> dict[str, str]:
    """Return the variables with which vLLM's HTTP clients accept the certificate of the store."""
    return dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(authority)) if authority else {}
