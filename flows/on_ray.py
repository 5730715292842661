"""Extraction by the machines of a Ray cluster: each shard is a task of Prefect's on it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from flows.shards import extract_shard
from flows.work import make_preparer
from infra.errors import ConfigurationError, DecodersLostError
from infra.settings import load_settings
from tasks.domain import RunSpec
from tasks.frames.decoding import decode_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prefect.futures import PrefectFuture
    from prefect_ray import RayTaskRunner

    from flows.arriving import Arriving
    from flows.work import FindPreparer, StartExtraction
    from tasks.domain import Shard
    from tasks.frames.prepare import Preparer
    from tasks.plans.extracted import ExtractedShard
    from tasks.video.pool import DecodePool

_SPECS_KEPT = 4  # a worker serves few ways of asking at a time
_STARTS = 3


@lru_cache(_SPECS_KEPT)
def preparer_there(spec: str, processes: int) -> Preparer:
    """Make what prepares videos, on whatever machine this is called, by the settings of that machine.

    No secret travels so.

    Args:
        spec: How the videos' jobs are asked, as JSON.
        processes: Decoding processes.
    """
    return make_preparer(load_settings(), _pool_there(processes), RunSpec.model_validate_json(spec), keep_bytes=0)


@lru_cache(1)
def _pool_there(processes: int) -> DecodePool:  # it ends with the worker
    return decode_pool(load_settings(), processes=processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster that extracts.

    Attributes:
        start: Starts the extraction of a shard; gives what waits for it.
        shards_at_once: As many as it has room for.
    """

    start: StartExtraction
    shards_at_once: int


@contextmanager
def connected(address: str, *, processes: int) -> Iterator[Cluster]:
    """Connect to a Ray cluster, or start one here for `local`.

    Args:
        address: As `ray.init` takes it.
        processes: Decoding processes of a shard, hence the CPUs that it asks for.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster does not answer.
    """
    try:
        import ray  # noqa: PLC0415 - an extra, which few want
        from prefect_ray import RayTaskRunner  # noqa: PLC0415
        from prefect_ray.context import remote_options  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "REELABEL_EXTRACT_RAY_ADDRESS is set, but Ray is not installed here; run: pip install 'reelabel[ray]'."
        ) from None
    kept_quiet = {"log_to_driver": False} | ({"include_dashboard": False} if address == "local" else {})

    def start(shard: Shard, preparer: FindPreparer, _arriving: Arriving) -> Callable[[], ExtractedShard]:
        arguments = {
            "index": shard.index,
            "shard": shard,
            "find_preparer": preparer,
            "open_workers": partial(ThreadPoolExecutor, processes),
        }
        with remote_options(num_cpus=processes):
            future = runner.submit(extract_shard, arguments)
        return partial(_result, future)

    def _result(future: PrefectFuture[ExtractedShard]) -> ExtractedShard:
        try:
            return future.result()
        except ray.exceptions.RayError as error:
            raise DecodersLostError(f"The Ray worker of a shard was lost: {error}") from None

    with _entered(partial(RayTaskRunner, address=address, init_kwargs=kept_quiet), address) as runner:
        room = int(ray.cluster_resources().get("CPU", 1)) // processes
        yield Cluster(start=start, shards_at_once=max(1, room))


@contextmanager
def _entered(make_runner: Callable[[], RayTaskRunner[Any]], address: str) -> Iterator[RayTaskRunner[Any]]:
    import ray  # noqa: PLC0415

    # A node of Ray's ends itself where its agents take 15 s to start, as they do on a machine that is busy.
    for left in reversed(range(_STARTS if address == "local" else 1)):
        runner = make_runner()
        try:
            runner.__enter__()
            break
        except Exception as error:  # noqa: BLE001 - as Ray raises it where a node does not start
            ray.shutdown()
            if left:
                continue
            raise ConfigurationError(
                f"The Ray cluster at {address} does not answer ({error}); see REELABEL_EXTRACT_RAY_ADDRESS."
            ) from None
    try:
        yield runner
    finally:
        runner.__exit__(None, None, None)
