"""The index of `reelabel search`, which runs that describe videos keep up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import get_run_logger

from reelabel.errors import ReelabelError
from reelabel.text import pluralize
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.search.build import update_index
from tasks.search.index_store import index_store

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import ModelIdentity
    from tasks.search.build import BuildReport
    from tasks.search.catalogue import Catalogue, VectorSpace


def index_embeddings(settings: Settings, catalogue: Catalogue, model: ModelIdentity) -> None:
    """Bring the index of a model's embeddings up to date.

    If that fails, it is logged, and searches read the new embedding files themselves: the run has succeeded.
    """
    try:
        for space in catalogue.spaces():
            if space.model == model:
                report = _update(settings, catalogue, space)
                for fault in report.faults:
                    get_run_logger().warning("%s", fault)
                if report.was_overtaken:
                    get_run_logger().info(
                        "Other runs keep the search index of %s up; the next one adds the rest.", space
                    )
                else:
                    get_run_logger().info("The search index has %s of %s.", pluralize(report.rows, "frame"), space)
    except ReelabelError as error:
        get_run_logger().warning("The search index was not updated: %s", error.message)


def _update(settings: Settings, catalogue: Catalogue, space: VectorSpace) -> BuildReport:
    """Update the index of a space; again if another run was faster, such as one that has shared the plan."""
    store, cache = index_store(settings, space), EmbeddingCache.of(settings.store)
    report = update_index(store, cache, catalogue.keys(space))
    return update_index(store, cache, catalogue.keys(space)) if report.was_overtaken else report
