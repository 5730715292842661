"""Extraction on a Ray cluster, each shard as a Prefect task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from flows.shard.extract import extract_shard
from infra.program import APPLICATION
from infra.settings import load_settings
from reelabel.errors import ConfigurationError, DecodersLostError
from reelabel.optional import install_command
from tasks.domain import RunSpec
from tasks.frame_cache.pool import decode_pool, open_extractor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prefect.futures import PrefectFuture
    from prefect_ray import RayTaskRunner

    from flows.run.pipeline import MakeExtractor, StartExtraction
    from flows.shard.extract import FrameStream
    from reelabel.pool.decode_pool import DecodePool
    from tasks.domain import Shard
    from tasks.frame_cache.extractor import FrameExtractor
    from tasks.plans.extracted import ExtractedShard

_SPECS_KEPT = 4  # a worker serves few specs at a time
_STARTS = 3


@lru_cache(_SPECS_KEPT)
def remote_extractor(spec: str, processes: int) -> FrameExtractor:
    """Create an extractor by the spec of a run, as JSON, from the settings of the machine where this is called.

    Thus no secrets are sent over the network.
    """
    sampling = RunSpec.model_validate_json(spec).sampling
    return open_extractor(load_settings(), _pool_there(processes), sampling, keep_bytes=0)


@lru_cache(1)
def _pool_there(processes: int) -> DecodePool:  # it ends with the worker
    return decode_pool(load_settings(), processes=processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster for extraction.

    Attributes:
        start: Starts the extraction of a shard, and returns a function that waits for it.
        max_concurrent_shards: Number of shards for which it has CPUs.
    """

    start: StartExtraction
    max_concurrent_shards: int


@contextmanager
def ray_cluster(address: str, *, processes: int) -> Iterator[Cluster]:
    """Connect to a Ray cluster, or start one on this machine for `local`; a shard has as many CPUs as processes.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster does not respond.
    """
    try:
        import ray  # noqa: PLC0415 - an optional extra
        from prefect_ray import RayTaskRunner  # noqa: PLC0415
        from prefect_ray.context import remote_options  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "REELABEL_EXTRACT_RAY_ADDRESS is set, but Ray is not installed here: "
            f"`{install_command('ray', of=APPLICATION)}`."
        ) from None
    quiet_options = {"log_to_driver": False} | ({"include_dashboard": False} if address == "local" else {})

    def start(shard: Shard, extractor: MakeExtractor, _stream: FrameStream) -> Callable[[], ExtractedShard]:
        arguments = {
            "index": shard.index,
            "shard": shard,
            "make_extractor": extractor,
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

    with _entered(partial(RayTaskRunner, address=address, init_kwargs=quiet_options), address) as runner:
        shards = int(ray.cluster_resources().get("CPU", 1)) // processes
        yield Cluster(start=start, max_concurrent_shards=max(1, shards))


@contextmanager
def _entered(make_runner: Callable[[], RayTaskRunner[Any]], address: str) -> Iterator[RayTaskRunner[Any]]:
    import ray  # noqa: PLC0415

    # A Ray node exits if its agents take over 15 s to start, as happens on a busy machine.
    for left in reversed(range(_STARTS if address == "local" else 1)):
        runner = make_runner()
        try:
            runner.__enter__()
            break
        except Exception as error:  # noqa: BLE001 - Ray raises it if a node does not start
            ray.shutdown()
            if left:
                continue
            raise ConfigurationError(
                f"The Ray cluster at {address} does not respond ({error}); check REELABEL_EXTRACT_RAY_ADDRESS."
            ) from None
    try:
        yield runner
    finally:
        runner.__exit__(None, None, None)
