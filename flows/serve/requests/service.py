"""What single requests share: their places, threads and uploads."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flows.serve.requests.admission import Admission
from flows.serve.requests.uploads import Uploads
from reelabel.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from infra.settings import Settings

_MIB = 1024**2


@dataclass(slots=True, kw_only=True)
class Service:
    """What the routes of one service share; see `service_of`.

    Attributes:
        settings: With the addresses of the services behind.
        admission: Places of single requests.
        threads: One for each place.
        uploads: Where uploaded videos are.
    """

    settings: Settings = field(repr=False)
    admission: Admission
    threads: Executor
    uploads: Uploads


@contextmanager
def open_service(settings: Settings) -> Iterator[Service]:
    """Yield what the routes share, with all places free.

    Raises:
        DiskFullError: There is no space for uploads.
    """
    serve = settings.serve
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("upload"))
        threads = ThreadPoolExecutor(serve.max_requests, thread_name_prefix="request")
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        yield Service(
            settings=settings,
            admission=Admission(serve.max_requests),
            threads=threads,
            uploads=Uploads(folder, max_bytes=serve.max_upload_mib * _MIB),
        )


def service_of(request: Request) -> Service:
    """Return what the routes share."""
    found: Service = request.app.state.service
    return found
