"""Opens the engines of the service, and their routes."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from flows.serve.live.page import page_router
from flows.serve.live.socket import live_router, make_sessions
from flows.serve.requests import analyze, classify
from flows.serve.requests.analyze import Analyzer, analyze_router
from flows.serve.requests.classify import Classifier, classify_router
from infra.database.connect import connected
from reelabel.cores import usable_cores
from tasks.frame_cache.pool import decode_pool
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.record.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from fastapi import APIRouter
    from sqlalchemy import Engine

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from tasks.live.model import LiveModel
    from tasks.live.sessions import Sessions


@dataclass(slots=True)
class Answering:
    """The routes of the loaded models."""

    routers: list[APIRouter] = field(default_factory=list)
    end_sessions: Callable[[], Awaitable[None]] | None = None  # and notify their clients; None without live sessions


@contextmanager
def open_engines(settings: Settings, *, uploads: Path) -> Iterator[Answering]:
    """Load the models of `serve.load`; yield their routes.

    Of local files, clients may name those in the folders of `extract.allow_roots` and `uploads`.

    Raises:
        ModelError: A model cannot be loaded.
        ConfigurationError: The settings conflict, or a server cannot be reached.
        DatabaseUnavailableError: Postgres is unavailable.
    """
    settings = with_uploads(settings, uploads)
    load, extract = settings.serve.load, settings.extract
    with ExitStack() as stack:
        database = stack.enter_context(connected(settings.database))
        pool = stack.enter_context(decode_pool(settings, processes=extract.processes or usable_cores(), ahead=True))
        answering = Answering()
        routers = answering.routers
        if "analyze" in load:  # before the engine, which takes the remaining memory of a GPU
            analyzer = stack.enter_context(Analyzer(settings, pool=pool))
            analyzer.wait_ready()
            routers.append(analyze_router(partial(analyze.answer, analyzer)))
        if "classify" in load or "live" in load:
            max_sessions = settings.live.max_sessions if "live" in load else 0
            classifier = stack.enter_context(
                Classifier(settings, pool=pool, database=database, live_sessions=max_sessions)
            )
            if "classify" in load:
                classifier.wait_ready()
                routers.append(classify_router(partial(classify.answer, classifier)))
            if classifier.live:
                sessions = stack.enter_context(_open_sessions(settings, classifier.live, pool, database))
                answering.end_sessions = sessions.close
                routers.append(live_router(sessions))
                routers.append(page_router(sessions.setup.info, needs_token=settings.serve.token is not None))
        yield answering


def with_uploads(settings: Settings, folder: Path) -> Settings:
    """Return settings that also allow reading the videos of a folder."""
    extract = settings.extract
    roots = {"allow_roots": (*extract.allow_roots, folder.resolve())}
    return settings.model_copy(update={"extract": extract.model_copy(update=roots)})


@contextmanager
def _open_sessions(settings: Settings, model: LiveModel, pool: DecodePool, database: Engine) -> Iterator[Sessions]:
    """Yield the live sessions, which are recorded."""
    info = model.wait_ready()
    with closing(Recorder(database, SealedFiles.of(settings.store))) as recorder:
        open_record = partial(recorder.open_session, info=info)
        yield make_sessions(settings, model=model, info=info, pool=pool, open_record=open_record)
