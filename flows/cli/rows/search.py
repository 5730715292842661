"""`reelabel search`."""

from __future__ import annotations

import math
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from PIL import Image
from rich.table import Table

from flows.cli.console import ERRORS, OUT, cell, print_line, print_notice, require_parent_folder, text_sink
from flows.cli.context import open_database
from flows.cli.rows.formats import write_rows
from infra.embedded import ServiceName
from reelabel.errors import ConfigurationError, ReelabelError, VideoRefusedError
from reelabel.frames.extractor import stat_video
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, scheme_of
from reelabel.wording import pluralize
from tasks.embedding.backend import towers_backend
from tasks.embedding.opened import bank_files, embedding_cache, open_towers
from tasks.frame_cache.pool import decode_pool, uncached_fetcher
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.search.catalogue import choose_space
from tasks.search.index_store import index_store
from tasks.search.query import QueryEmbedder, check_text, parse_moment, read_image, vector_at
from tasks.search.searcher import Searcher
from tasks.search.sheet import Cell, draw_moments

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from infra.settings import Settings
    from reelabel.frames.fetch import FrameFetcher
    from tasks.embedding.backend import EmbeddingBackend
    from tasks.search.catalogue import VectorSpace
    from tasks.search.searcher import SearchResult

_FORMATS = ("table", "json", "csv", "parquet")
_SHEET_PIXELS = 300 * 220 * 4
# Times of embeddings are rounded to milliseconds.
_FRAME_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of the command; see its help."""

    text: str | None
    image: str | None
    like: str | None
    top: int
    dataset: str | None
    task: str | None
    min_score: float | None
    model: str | None
    exact: bool
    sheet: str | None
    form: str
    raw: bool

    def check(self) -> None:
        """Check all that can be checked before anything is started.

        Raises:
            ConfigurationError: The options conflict, or name something that cannot be used.
        """
        if sum(each is not None for each in (self.text, self.image, self.like)) != 1:
            raise ConfigurationError("Say what to search for: a text, or --image FILE, or --like JOB_ID@SECONDS.")
        if self.form not in _FORMATS:
            raise ConfigurationError(f"Unknown --format {self.form}; use {', '.join(_FORMATS)}.")
        if self.raw and self.form != "csv":
            raise ConfigurationError("--raw is for --format csv; the other formats write texts as they are.")
        if self.min_score is not None and not math.isfinite(self.min_score):
            raise ConfigurationError("--min-score must be a number from -1 to 1.")
        if self.text is not None:
            check_text(self.text)
        if self.image is not None:
            read_image(Path(self.image))
        if self.like is not None:
            parse_moment(self.like)
        if self.sheet:
            require_parent_folder(self.sheet)
            if Image.registered_extensions().get(Path(self.sheet).suffix.lower()) not in Image.SAVE:
                raise ConfigurationError(f"--sheet {self.sheet} is not an image file; use a name such as sheet.png.")

    @property
    def query_name(self) -> str:
        """What is searched for, in a title."""
        return self.text or (f"like {self.like}" if self.like else f"like {self.image}")


def run_search(options: SearchOptions) -> int:
    """Search all cached embeddings, print the best moments, and draw them if asked to.

    Returns:
        The exit code: 1 if nothing was found.

    Raises:
        ConfigurationError: The options cannot be used, or there is nothing to search.
        ModelError: The model that embeds what is searched for cannot be loaded.
    """
    options.check()
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        search = _Search(options, settings, DatabaseCatalogue(engine))
        result, found = search.find()
        for note in result.notes:
            print_notice(note)
        _print_rows(found, result, options)
        if options.sheet:
            with ERRORS.status("Fetching the frames"):
                cells = draw_cells(found, settings)
            draw_moments(f"{options.query_name}: {pluralize(len(found), 'moment')}", cells).save(options.sheet)
    return 0 if len(found) else 1


class _Search:
    """One search, from the options to the rows."""

    def __init__(self, options: SearchOptions, settings: Settings, catalogue: DatabaseCatalogue) -> None:
        self._options = options
        self._settings = settings
        self._catalogue = catalogue
        self._cache = embedding_cache(settings)

    def find(self) -> tuple[SearchResult, pl.DataFrame]:
        """Search; return what was found, also with the jobs of each moment."""
        options = self._options
        space, query, without = self._find_like() if options.like else self._embed()
        of = {"dataset": options.dataset, "task": options.task}
        files = self._catalogue.files(space, **of)
        if files.is_empty():
            raise ConfigurationError(f"No described video{_selection(options)} has embeddings of {space}.")
        store = index_store(self._settings, space)
        with ERRORS.status("Searching"), Searcher(files, self._cache, store, exact=options.exact) as searcher:
            result = searcher.search(query, top=options.top, min_score=options.min_score, without=without)
        keys = [files["key"][moment.file] for moment in result.moments]
        return result, _rows(result, keys, self._catalogue.read(space, keys=list(dict.fromkeys(keys)), **of))

    def _embed(self) -> tuple[VectorSpace, npt.NDArray[np.float32], None]:
        options, describe = self._options, self._settings.describe
        backend = towers_backend(describe.backend)
        card = backend.card(options.model or describe.model, revision=describe.revision)
        space = choose_space(self._catalogue, card.identity)

        @contextmanager
        def opened() -> Iterator[EmbeddingBackend]:
            with ERRORS.status("Loading the model"), closing(open_towers(self._settings, card)) as towers:
                towers.start()
                yield towers

        embedder = QueryEmbedder(space=space, kept=bank_files(self._settings), open_towers=opened)
        if options.text is not None:
            return space, embedder.embed_text(options.text), None
        return space, embedder.embed_image(Path(options.image or "")), None

    def _find_like(self) -> tuple[VectorSpace, npt.NDArray[np.float32], tuple[str, int]]:
        options = self._options
        job_id, time_s = parse_moment(options.like or "")
        spaces = self._catalogue.spaces()
        if options.model:
            describe = self._settings.describe
            card = towers_backend(describe.backend).card(options.model, revision=describe.revision)
            spaces = {space: spaces[space] for space in [choose_space(self._catalogue, card.identity)]}
        for space in sorted(spaces, key=lambda each: -spaces[each]):
            jobs = self._catalogue.read(space, dataset=options.dataset, job_id=job_id)
            if jobs["dataset"].n_unique() > 1:
                names = ", ".join(jobs["dataset"].unique(maintain_order=True))
                raise ConfigurationError(f"There are jobs {job_id} in {names}; say which with --dataset.")
            for key in jobs["key"]:
                query, time_ms = vector_at(self._cache, key, time_s)
                return space, query, (key, time_ms)
        raise ConfigurationError(
            f"No job {job_id}{_selection(options)} has been described; `reelabel results` lists those that have."
        )


def _selection(options: SearchOptions) -> str:
    parts = [f"{name} {value}" for name, value in (("dataset", options.dataset), ("task", options.task)) if value]
    return f" of {' and '.join(parts)}" if parts else ""


def _rows(result: SearchResult, keys: list[str], jobs: pl.DataFrame) -> pl.DataFrame:
    """Return a row per moment, with the first job on its video and how many there are."""
    moments = pl.DataFrame(
        {
            "rank": range(1, len(result.moments) + 1),
            "score": [each.score for each in result.moments],
            "time_s": [each.time_ms / 1000 for each in result.moments],
            "key": keys,
        },
        schema={"rank": pl.Int64, "score": pl.Float64, "time_s": pl.Float64, "key": pl.String},
    )
    first = jobs.group_by("key", maintain_order=True).agg(
        pl.col("dataset", "job_id", "task", "video_uri").first(), pl.len().cast(pl.Int64).alias("jobs")
    )
    columns = ("rank", "score", "dataset", "job_id", "task", "video_uri", "time_s", "jobs")
    return moments.join(first, on="key", how="left", maintain_order="left").select(columns)


def _print_rows(found: pl.DataFrame, result: SearchResult, options: SearchOptions) -> None:
    if options.form != "table":
        sink = sys.stdout.buffer if options.form == "parquet" else text_sink()
        write_rows([found], form=options.form, sink=sink, raw=options.raw)
        sys.stdout.flush()
        return
    if found.is_empty():
        print_line(f"Nothing found among {pluralize(result.rows, 'frame')}.")
        return
    table = Table("score", "time", "job", "video")
    for row in found.iter_rows(named=True):
        job = row["job_id"] if row["jobs"] == 1 else f"{row['job_id']} and {row['jobs'] - 1:,} more"
        table.add_row(*map(cell, (f"{row['score']:.3f}", f"{row['time_s']:.3f} s", job, row["video_uri"])))
    OUT.print(table)
    print_line(f"{pluralize(len(found), 'moment')} of {pluralize(result.rows, 'frame')}.")


def draw_cells(found: pl.DataFrame, settings: Settings) -> list[Cell]:
    """Fetch the frames of moments; one that cannot be fetched has a fault in place of its picture."""
    sampling, cells = Sampling(sampler="uniform", num_frames=1, max_pixels=_SHEET_PIXELS), []
    with decode_pool(settings, processes=1) as pool:
        fetcher = uncached_fetcher(settings, pool, sampling)
        for row in found.iter_rows(named=True):
            uri, time_s = row["video_uri"], row["time_s"]
            lines = (f"{row['score']:.3f}   {time_s:.3f} s", row["job_id"], uri.rpartition("/")[2])
            try:
                cells.append(Cell(lines=lines, image=_fetch_frame(fetcher, uri, time_s)))
            except ReelabelError as error:
                cells.append(Cell(lines=lines, fault=error.message))
    return cells


def _fetch_frame(fetcher: FrameFetcher, uri: str, time_s: float) -> npt.NDArray[np.uint8]:
    """Fetch the frame of a moment; shape (H, W, 3).

    Raises:
        VideoError: The video cannot be used, or its address was not stored in full.
    """
    scheme = scheme_of(uri)
    if scheme == INLINE_SCHEME or (scheme in WEB_SCHEMES and uri.endswith("...")):
        raise VideoRefusedError("Its address had a signature, or was the video itself, and is not stored.")
    info = stat_video(fetcher.objects, uri, allow_roots=fetcher.allow_roots)
    at = replace(fetcher, segment=Segment.of(time_s, time_s + _FRAME_S))
    frame: npt.NDArray[np.uint8] = at.fetch(info).keyframes.images[0]
    return frame
