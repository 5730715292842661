"""`python -m benchmarks pipeline`: compares whole pipelines, from videos on S3 to answers, with each model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cores import Cores, CpuUtilization, bind
from benchmarks.engine.sweep import CHOSEN, Candidate, Requests, sweep
from benchmarks.harness import about
from benchmarks.media.footage import make_footage
from benchmarks.models import model_folder
from benchmarks.pipeline.contender import (
    CEILING,
    COLD,
    DEFINITION,
    EXTRACTION,
    KEYFRAMES,
    UNIFORM,
    WARM,
    Isolated,
    check_targets,
    measure,
    results_table,
)
from benchmarks.pipeline.engines import BareEngine, LlmChat
from benchmarks.pipeline.flow import FlowRun
from benchmarks.pipeline.local import Extractor
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, upload, versions, workload_of
from reelabel.sources.s3 import sign_url
from reelabel_engine.environment import engine_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.harness import Table, Target
    from benchmarks.pipeline.contender import Contender
    from infra.settings import Settings

# By name: the share of the ceiling that a warm cache should reach, and the share of the jobs, so that all take as long.
MODELS = {"tiny": (0.85, 1.0), "100m": (0.95, 1 / 24)}
SIDE_PX = 240
# The benchmark `engine` measures more; these differ the most.
_CEILING_CANDIDATES = (
    Candidate(name=CHOSEN),
    Candidate(
        name="64 prompts in steps of 8,192 tokens", arguments={"max_num_batched_tokens": 8192, "max_num_seqs": 64}
    ),
    Candidate(name="one prompt per step", arguments={"max_num_batched_tokens": 8192, "max_num_seqs": 1}),
)
_SWEEP_REQUESTS = 32
_FEW_JOBS, _SMALL_SHARD_JOBS = 500, 50  # few jobs still make several shards
_SIGNED_S = 24 * 3600
_MAX_CHAT_JOBS = 400  # vLLM's own loader would take very long for all


def compare(
    settings: Settings,
    folder: Path,
    names: Sequence[str],
    *,
    jobs: int,
    questions: int,
    rounds: int,
    show: Callable[[str], None],
) -> tuple[list[Table], list[Target], dict[str, Any]]:
    """Compare pipelines with each model; `jobs` are those of a pass with the tiny one, `questions` those per video."""
    cores = Cores.split()
    bind(os.getpid(), cores.host)
    tables: list[Table] = []
    targets: list[Target] = []
    settings_of: dict[str, Any] = {}
    for name in names:
        show(f"{name}: making clips and model")
        warm_share, jobs_share = MODELS[name]
        count = max(1, round(jobs * jobs_share / questions))
        comparison = _Comparison(
            name=name,
            settings=_with_model(settings, model_folder(name, folder), jobs=count * questions),
            cores=cores,
            clips=make_footage(folder, count=WARM_UP_CLIPS + count, width_px=SIDE_PX, height_px=SIDE_PX),
            questions=questions,
            show=about(name, show),
        )
        with CpuUtilization(cores) as utilization:
            results = measure(
                comparison.contenders(), rounds=rounds, utilization=utilization, on_progress=comparison.show
            )
        title = f"{name}: {count * questions} jobs on {count} videos, medians of {rounds} rounds"
        tables.append(results_table(title, results))
        found = check_targets(results, jobs_per_video=questions, warm_share=warm_share)
        targets += [target._replace(name=f"{name}: {target.name}") for target in found]
        settings_of[f"{name}: settings of the ceiling's engine"] = comparison.fastest.name
    return tables, targets, settings_of | {"definition": f"{DEFINITION} {cores}", "versions": versions()}


def _with_model(settings: Settings, model: Path, *, jobs: int) -> Settings:
    # In float32, answers do not depend on the batch in which they are computed.
    chosen = settings.model.model_copy(update={"name": str(model), "dtype": "float32"})
    shard = {"target_jobs": _SMALL_SHARD_JOBS} if jobs < _FEW_JOBS else {}
    return settings.model_copy(update={"model": chosen, "shard": settings.shard.model_copy(update=shard)})


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """The contenders of one model on one set of clips, of which the first ones are for the warm-up."""

    name: str
    settings: Settings
    cores: Cores
    clips: Sequence[Path] = field(repr=False)
    questions: int
    show: Callable[[str], None]
    workload: Workload = field(init=False)
    fastest: Candidate = field(init=False)

    def contenders(self) -> dict[str, Contender]:
        """Return them in the order of a round: the cold one leaves its frames for the warm one."""
        self.workload = workload_of(self.settings, self.clips, questions_per_video=self.questions)
        root_uri = f"{self.settings.store.uri}/{self.name}"
        manifest_uri = upload(self.workload, self.settings.store, root_uri)
        self.fastest = self._fastest()
        extractor = Extractor(
            videos=[f"{root_uri}/{Path(path).name}" for path in self.workload.videos],
            sampling=self.workload.spec.sampling,
            store=self.settings.store,
            root_uri=f"{root_uri}/extracted",
            processes=self.settings.extract.processes,
        )
        engine = BareEngine(workload=self.workload, arguments=self.fastest.arguments)
        environment = engine_environment(self.workload.engine) | self.fastest.environment
        return {
            CEILING: self._isolated(engine, environment, self.cores.engine),
            EXTRACTION: self._isolated(extractor, os.environ, self.cores.host),
            COLD: self._flow(manifest_uri, f"{root_uri}/cache", "cold"),
            WARM: self._flow(manifest_uri, f"{root_uri}/cache", "warm"),
            UNIFORM: self._chat(root_uri, "opencv"),
            KEYFRAMES: self._chat(root_uri, "pyav_keyframes"),
        }

    def _fastest(self) -> Candidate:
        """Find the settings with which the engine alone is the fastest."""
        requests = Requests(
            config=self.workload.engine,
            count=min(_SWEEP_REQUESTS, len(self.workload.jobs)),
            side_px=isqrt(self.workload.spec.sampling.max_pixels or 0),
            rounds=2,
        )
        swept = sweep(
            requests,
            _CEILING_CANDIDATES,
            cores=tuple(sorted(self.cores.engine)),
            on_candidate=lambda name: self.show(f"ceiling: trying {name}"),
        )
        return swept.best

    def _flow(self, manifest_uri: str, cache_uri: str, name: str) -> Contender:
        return FlowRun(
            workload=self.workload,
            settings=self.settings,
            manifest_uri=manifest_uri,
            cache_uri=cache_uri,
            name=f"{self.name} {name}",
            cores=self.cores,
        )

    def _chat(self, root_uri: str, loader: str) -> Contender:
        outside = self.cores.engine_variables | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        authority = self.settings.store.ca_file  # which vLLM's HTTP clients then accept
        trusting = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(authority)) if authority else {}
        sign = partial(sign_url, self.settings.store, valid_s=_SIGNED_S)
        chat = LlmChat(
            workload=self.workload,
            loader=loader,
            cores=self.cores,
            urls={path: sign(f"{root_uri}/{Path(path).name}") for path in self.workload.videos},
            max_jobs=_MAX_CHAT_JOBS,
        )
        return self._isolated(chat, engine_environment(self.workload.engine) | outside | trusting, self.cores.host)

    def _isolated(self, contender: Contender, environment: Mapping[str, str], cores: frozenset[int]) -> Contender:
        return Isolated(contender, environment=environment, cores=cores, logs=self.settings.home / "logs")
