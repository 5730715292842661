"""How runs are executed, scheduled and limited, and what they cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.settings.types import AbsolutePath, Cron, SettingsSection, Started, Timezone


class ExtractSettings(SettingsSection):
    """Decoding processes and their limits."""

    processes: int | None = Field(None, ge=1, le=256)
    """Decoding processes; defaults to one per core that the container may use."""
    timeout_s: float = Field(60, gt=0, le=3600)
    """Maximum seconds for decoding one video; its CPU time is limited to twice as many."""
    memory_mib: int = Field(4096, ge=256, le=65536)
    """Memory limit of a decoding process, in MiB."""
    max_video_bytes: int = Field(4 * 1024**3, ge=1024)
    """Larger videos fail with video_too_large."""
    max_duration_s: float = Field(86_400, gt=0)
    """Longer videos fail with video_too_large."""
    sandbox: Literal["auto", "require", "off"] = "auto"
    """auto uses every protection that the kernel supports, require fails without all of them, off only limits
    resources."""
    videos_per_process: int = Field(1000, ge=1, le=1_000_000)
    """Videos until a decoding process is replaced; with 1, a hostile video cannot change the frames of others."""
    ray_address: str | None = None
    """Ray cluster on which extract flows decode, such as ray://head:10001; local starts one; if empty, none."""
    allow_roots: tuple[AbsolutePath, ...] = ()
    """Folders that local videos must be in (symlinks resolved), such as ["/videos"]; if empty, any."""
    lookahead_shards: int = Field(2, ge=1, le=64)
    """Shards extracted ahead of the one being inferred."""


class ShardSettings(SettingsSection):
    """How a manifest is split into shards, and how long they are leased."""

    target_jobs: int = Field(100, ge=50, le=200)
    """Target number of jobs per shard (50 to 200)."""
    lease_s: float = Field(60, ge=1, le=3600)
    """Seconds without a heartbeat before a worker's shards go to other workers."""


class RunSettings(SettingsSection):
    """Where runs are executed, and how many at a time."""

    executor: Literal["local", "remote"] = "local"
    """local extracts and infers in the run's own flow; remote starts extract and infer flows."""
    max_concurrent_runs: int = Field(1, ge=1, le=1000)
    """With the local executor, concurrent runs of classify/on-demand; set it to the number of machines."""
    extract_flows: int = Field(1, ge=0, le=1000)
    """extract/cpu flows started per run; with 0, start them yourself."""
    infer_flows: int = Field(1, ge=0, le=1000)
    """infer/gpu flows started per run; with 0, start them yourself."""
    max_cost: float | None = Field(None, gt=0)
    """Cost, by the prices of [cost], at which a run stops; the next one continues. If unset, there is no limit."""


class CostSettings(SettingsSection):
    """Prices of machines, in any currency; 0 is not counted."""

    per_gpu_hour: float = Field(0.0, ge=0, le=1e6)
    """Price of a GPU-hour, charged from the start of the engine to its end."""
    per_cpu_hour: float = Field(0.0, ge=0, le=1e6)
    """Price of a core-hour, charged while a process fetches and decodes videos, and for an engine without a GPU."""

    @property
    def is_set(self) -> bool:
        return self.per_gpu_hour + self.per_cpu_hour > 0


class NightlySettings(SettingsSection):
    """The nightly run, deployment classify/nightly."""

    manifest: str | None = None
    """Manifest, such as s3://bucket/jobs/dt={scheduled_date}/*.parquet; if empty, the deployment keeps its own, and is
    paused without one."""
    dataset: str | None = Field(None, max_length=200)
    """Dataset, which may contain {scheduled_date}; defaults to one per date, such as jobs-{scheduled_date}, or
    without dates to the manifest's file name."""
    cron: Cron = "0 2 * * *"
    """Schedule of classify/nightly."""
    timezone: Timezone = "UTC"
    """Time zone of the schedule, and of {scheduled_date}."""
    when_running: Literal["queue", "skip"] = "queue"
    """What to do if the previous run is still running: wait for it, or skip this one."""
    may_be_empty: bool = True
    """Whether a run without a manifest completes, with a note; if false, it fails."""


class WatchSettings(SettingsSection):
    """The deployment that starts a run for each new manifest."""

    manifests: str | None = None
    """Glob of manifests to watch for, such as s3://bucket/in/*.parquet; if empty, none."""
    starts: Started = "classify"
    """What is started for each manifest: classify, or describe for descriptions."""
