"""Extraction on a Ray cluster, each shard as a Prefect task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    """Create an extractor by the spec of a run, as JSON, from the settings of this machine.

    Tasks call it on the machine that extracts, so that no secrets are sent over the network.
    """
    sampling = RunSpec.model_validate_json(spec).sampling
    return open_extractor(load_settings(), _pool_there(processes), sampling, keep_bytes=0)


@lru_cache(1)
def _pool_there(processes: int) -> DecodePool:  # it ends with the worker
    return decode_pool(load_settings(), processes=processes)


@contextmanager
def ray_cluster(address: str, *, processes: int) -> Iterator[tuple[StartExtraction, int]]:
    """Connect to a Ray cluster, or start one on this machine for `local`; a shard has as many CPUs as processes.

    Yields a function that starts the extraction of a shard, and the number of shards for which there are CPUs.

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

    # A Ray node exits if its agents take over 15 s to start, as happens on a busy machine.
    for left in reversed(range(_STARTS if address == "local" else 1)):
        runner: RayTaskRunner[Any] = RayTaskRunner(address=address, init_kwargs=quiet_options)
        try:
            runner.__enter__()
            break
        except Exception as error:  # noqa: BLE001 - Ray raises it if a node does not start
            ray.shutdown()
            if not left:
                raise ConfigurationError(
                    f"The Ray cluster at {address} does not respond ({error}); check REELABEL_EXTRACT_RAY_ADDRESS."
                ) from None
    try:
        yield start, max(1, int(ray.cluster_resources().get("CPU", 1)) // processes)
    finally:
        runner.__exit__(None, None, None)
