"""The engines of the service, and the routes that they answer."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from flows.serve.analyze import analyze_router
from flows.serve.analyzer import Analyzer
from flows.serve.classifier import Classifier
from flows.serve.classify import classify_router
from infra.database.connect import connect
from reelabel.cores import usable_cores
from tasks.frame_cache.pool import decode_pool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastapi import APIRouter

    from infra.settings import Settings


@contextmanager
def open_engines(settings: Settings, *, uploads: Path) -> Iterator[list[APIRouter]]:
    """Load what `serve.load` names; yield the routes that it answers.

    Clients may name files of this machine only in the folders of `extract.allow_roots`.

    Args:
        settings: What to load, and how.
        uploads: Folder of uploaded videos.

    Raises:
        ModelError: A model cannot be loaded.
        ConfigurationError: The settings conflict, or a server cannot be reached.
        DatabaseUnavailableError: Postgres is unavailable.
    """
    load, extract = settings.serve.load, settings.extract
    roots = {"allow_roots": (*extract.allow_roots, uploads.resolve())}
    settings = settings.model_copy(update={"extract": extract.model_copy(update=roots)})
    with ExitStack() as stack:
        database = connect(settings.database)
        stack.callback(database.dispose)
        pool = stack.enter_context(decode_pool(settings, processes=extract.processes or usable_cores()))
        routers = []
        if "analyze" in load:  # before the engine, which takes what memory is left of a GPU
            analyzer = stack.enter_context(Analyzer(settings, pool=pool))
            analyzer.wait_ready()
            routers.append(analyze_router(analyzer))
        if "classify" in load:
            classifier = stack.enter_context(Classifier(settings, pool=pool, database=database))
            classifier.wait_ready()
            routers.append(classify_router(classifier))
        yield routers
