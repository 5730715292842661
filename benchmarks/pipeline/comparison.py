"""`python -m benchmarks pipeline`: compares whole pipelines, from videos on S3 to answers, with each model."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.cores import Cores, CpuUtilization
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
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.harness import Table, Target
    from benchmarks.pipeline.contender import Contender
    from infra.settings import Settings

# By name: the share of the ceiling that a warm cache should reach, and the share of the jobs, so that all take as long.
MODELS = {"tiny": (0.85, 1.0), "100m": (0.95, 1 / 24)}
SIDE_PX = 240
# By name, arguments of vLLM with which the engine alone may be the fastest.
_CEILING_ARGUMENTS: Mapping[str, dict[str, Any]] = {
    "as chosen": {},
    "64 prompts in steps of 8,192 tokens": {"max_num_batched_tokens": 8192, "max_num_seqs": 64},
    "one prompt per step": {"max_num_batched_tokens": 8192, "max_num_seqs": 1},
}
_TRIED_JOBS, _TRIED_ROUNDS = 32, 2
_FEW_JOBS, _SMALL_SHARD_JOBS = 500, 50  # few jobs still make several shards
_SIGNED_S = 24 * 3600
_MAX_CHAT_JOBS = 400  # vLLM's own loader would take very long for all


def compare(
    settings: Settings,
    folder: Path,
    names: Sequence[str],
    cores: Cores,
    *,
    jobs: int,
    rounds: int,
    show: Callable[[str], None],
) -> tuple[list[Table], list[Target], dict[str, Any]]:
    """Compare pipelines with each model; `jobs` are those of a pass with the tiny one."""
    tables: list[Table] = []
    targets: list[Target] = []
    settings_of: dict[str, Any] = {}
    for name in names:
        show(f"{name}: making clips and model")
        warm_share, jobs_share = MODELS[name]
        count = max(1, round(jobs * jobs_share))
        comparison = _Comparison(
            name=name,
            settings=_with_model(settings, model_folder(name, folder), jobs=count),
            cores=cores,
            clips=make_footage(folder, count=WARM_UP_CLIPS + count, width_px=SIDE_PX, height_px=SIDE_PX),
            show=about(name, show),
        )
        with CpuUtilization(cores) as utilization:
            results = measure(
                comparison.contenders(), rounds=rounds, utilization=utilization, on_progress=comparison.show
            )
        title = f"{name}: {count} jobs on as many videos, medians of {rounds} rounds"
        tables.append(results_table(title, results))
        found = check_targets(results, warm_share=warm_share)
        targets += [target._replace(name=f"{name}: {target.name}") for target in found]
        settings_of[f"{name}: settings of the ceiling's engine"] = comparison.fastest
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
    show: Callable[[str], None]
    workload: Workload = field(init=False)
    fastest: str = field(init=False)

    def contenders(self) -> dict[str, Contender]:
        """Return them in the order of a round: the cold one leaves its frames for the warm one."""
        self.workload = workload_of(self.settings, self.clips)
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
        return {
            CEILING: self._ceiling(self.workload, self.fastest),
            EXTRACTION: self._isolated(extractor, os.environ, self.cores.host, python=sys.executable),
            COLD: self._flow(manifest_uri, f"{root_uri}/cache", "cold"),
            WARM: self._flow(manifest_uri, f"{root_uri}/cache", "warm"),
            UNIFORM: self._chat(root_uri, "opencv"),
            KEYFRAMES: self._chat(root_uri, "pyav_keyframes"),
        }

    def _fastest(self) -> str:
        """Return the name of the settings with which the engine alone is the fastest."""
        few = replace(self.workload, jobs=self.workload.jobs[:_TRIED_JOBS])
        rates = {}
        for name in _CEILING_ARGUMENTS:
            self.show(f"ceiling: trying {name}")
            try:
                with closing(self._ceiling(few, name)) as engine:
                    engine.load()
                    rates[name] = median(engine.run(number).jobs_per_s for number in range(1, 1 + _TRIED_ROUNDS))
            except ModelError as error:
                self.show(f"ceiling: {name} cannot be loaded: {error.message}")
        if not rates:
            raise ModelError("No settings of the ceiling's engine could be loaded; see the log.")
        return max(rates, key=rates.__getitem__)

    def _ceiling(self, workload: Workload, name: str) -> Contender:
        engine = BareEngine(workload=workload, arguments=_CEILING_ARGUMENTS[name])
        return self._isolated(engine, engine_environment(workload.engine), self.cores.engine)

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

    def _isolated(
        self, contender: Contender, environment: Mapping[str, str], cores: frozenset[int], *, python: str | None = None
    ) -> Contender:
        logs = self.settings.home / "logs"
        return Isolated(contender, environment=environment, cores=cores, logs=logs, python=python)
