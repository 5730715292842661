"""`reelabel search`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import polars as pl
import typer
from pydantic import BaseModel, ConfigDict, Field

from flows.cli.console import ERRORS, OUT, make_table, print_line, print_notice, require_sheet
from flows.cli.context import open_database
from flows.cli.options import Raw, example, with_options
from flows.cli.rows.formats import check_format, print_rows
from reelabel.errors import ConfigurationError, ReelabelError, VideoMissingError, VideoRefusedError
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, expand_home, scheme_of
from reelabel.sources.opened import stat_video
from reelabel.text import pluralize
from tasks.description.banks import read_bank
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import open_encoder, read_encoder_info
from tasks.embedding.vector_file import VectorCache
from tasks.frame_cache.pool import decode_pool, uncached_reader, video_store
from tasks.frame_cache.sheet import Picture, Section, draw_sheet, scale
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.search.catalogue import name_version, require_model
from tasks.search.local_index import LocalIndex
from tasks.search.query import QueryEmbedder, check_text, parse_moment, read_image, vector_at
from tasks.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from infra.settings import Settings
    from reelabel.frames.fetch import VideoReader
    from tasks.domain import ModelIdentity
    from tasks.embedding.encoder import Encoder
    from tasks.search.searcher import SearchResult

_BOX_PX = (300, 220)
_SHEET_PIXELS = 300 * 220 * 4
# Times of embeddings are rounded to milliseconds.
_FRAME_S = 0.001
# Checking the results must not take longer than the search: do not wait for a server that is down.
_MAX_CONCURRENT_LOOKS = 16
_GONE, _REPLACED = "gone", "replaced"


class SearchOptions(BaseModel):
    """Query, selection of videos, and output format of a search."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    text: str | None = None
    """What to look for, in a few words."""
    bank: str | None = None
    """Search for each text of a file: one per line, CSV or Parquet, as for tags."""
    image: str | None = None
    """Search for what looks like this picture instead."""
    like: str | None = None
    """Search for what looks like this moment, JOB_ID@SECONDS, such as film-7@12.5."""
    top: int = Field(10, ge=1, le=1000)
    """Maximum number of moments to show per search, up to 1000; defaults to 10."""
    dataset: str | None = None
    """Search only the videos of this dataset."""
    task: str | None = None
    """Search only the videos of jobs of this task."""
    min_score: float | None = Field(None, ge=-1, le=1)
    """Leave out moments with a lower cosine, from -1 to 1."""
    model: str | None = None
    """Folder or hub name of the embedding model; defaults to describe.model."""
    sheet: str | None = None
    """Save the frames to this image file, such as x.png."""
    format: str = "table"
    """table (default), json, csv or parquet."""

    def check(self, *, raw: bool) -> None:
        if sum(each is not None for each in (self.text, self.bank, self.image, self.like)) != 1:
            raise ConfigurationError("Give one of TEXT, --bank FILE, --image FILE and --like JOB_ID@SECONDS.")
        check_format(self.format, raw=raw)
        if self.sheet:
            if self.bank is not None:
                raise ConfigurationError("--sheet shows the results of one search, and --bank is many; leave one out.")
            require_sheet(self.sheet)
        for text in self.texts:
            check_text(text)
        if self.image is not None:
            read_image(self.picture)
        if self.like is not None:
            parse_moment(self.like)

    @property
    def picture(self) -> Path:
        return expand_home(self.image or "")

    @cached_property
    def texts(self) -> tuple[str, ...]:
        if self.bank is not None:
            return read_bank(expand_home(self.bank)).texts
        return () if self.text is None else (self.text,)

    @property
    def names(self) -> tuple[str, ...]:
        return self.texts or (f"like {self.like or self.image}",)


@example('reelabel search "people at a whiteboard" --top 20 --sheet found.png')
@with_options("options", SearchOptions)
def search(
    text: Annotated[str | None, typer.Argument(help="What to look for, in a few words.")] = None,
    *,
    options: SearchOptions,
    raw: Raw = False,
) -> None:
    """Search described videos by text, image or example.

    Exits with 1 if nothing is found.
    """
    options = options.model_copy(update={"text": text})
    options.check(raw=raw)
    with open_database(store=True) as (settings, engine):
        found = _Search(options, settings, DatabaseCatalogue(engine)).find()
        for note in dict.fromkeys(note for each in found for note in each.result.notes):
            print_notice(note)
        if options.format != "table":
            print_rows([each.rows for each in found], form=options.format, raw=raw)
        else:
            for each in found:
                _print_table(each, title=each.name if len(found) > 1 else "")
        if options.sheet:
            [first] = found
            with ERRORS.status("Fetching the frames"):
                pictures = fetch_pictures(first.rows, settings)
            section = Section(title=pluralize(len(pictures), "moment"), pictures=pictures)
            draw_sheet(first.name, "", [section], cell_px=_BOX_PX[0]).save(options.sheet)
    raise typer.Exit(0 if any(len(each.rows) for each in found) else 1)


class _QueryResult(NamedTuple):
    name: str
    result: SearchResult
    rows: pl.DataFrame


class _Search:
    def __init__(self, options: SearchOptions, settings: Settings, catalogue: DatabaseCatalogue) -> None:
        self._options = options
        self._settings = settings
        self._catalogue = catalogue
        self._cache = VectorCache.of(settings.store)

    def find(self) -> list[_QueryResult]:
        options = self._options
        model, queries, exclude = self._find_like() if options.like else self._embed()
        of = {"dataset": options.dataset, "task": options.task}
        files = self._catalogue.files(model, **of)
        if files.is_empty():
            raise ConfigurationError(
                f"No described video{_selection(options)} has embeddings of {name_version(model)}."
            )
        with ERRORS.status("Opening the index") as status:
            index = LocalIndex(self._settings.home / "search", model)
            if missing := index.missing(files["key"]):
                status.update(f"Indexing {pluralize(len(missing), 'new video')}")
            is_whole = not (options.dataset or options.task)
            searcher = Searcher(files, self._cache, index, is_whole=is_whole)
            status.update("Searching")
            results = [
                searcher.search(query, top=options.top, min_score=options.min_score, exclude=exclude)
                for query in queries
            ]
        keys = dict.fromkeys(files["key"][moment.file] for result in results for moment in result.moments)
        jobs = _with_states(self._catalogue.read(model, keys=list(keys), **of), self._settings)
        texts = options.texts or (None,)
        return [
            _QueryResult(name, result, _rows(text, result, files["key"], jobs))
            for name, text, result in zip(options.names, texts, results, strict=True)
        ]

    def _embed(self) -> tuple[ModelIdentity, list[npt.NDArray[np.float32]], None]:
        """Return the vectors of queries; the model is loaded once if any of them is not cached."""
        options = self._options
        model_info = read_encoder_info(self._settings, options.model)
        model = model_info.identity
        require_model(self._catalogue.models(), model)
        with ExitStack() as stack:

            @cache
            def load() -> Encoder:
                with ERRORS.status("Loading the model"):
                    encoder = stack.enter_context(closing(open_encoder(self._settings, model_info)))
                    encoder.start()
                    encoder.info()
                return encoder

            embedder = QueryEmbedder(
                model=model,
                cache=BankFiles.of(self._settings.store, python=self._settings.model.python),
                open_encoder=lambda: nullcontext(load()),
            )
            if options.image is not None:
                return model, [embedder.embed_image(options.picture)], None
            return model, [embedder.embed_text(text) for text in options.texts], None

    def _find_like(self) -> tuple[ModelIdentity, list[npt.NDArray[np.float32]], tuple[str, int]]:
        options = self._options
        job_id, time_s = parse_moment(options.like or "")
        models = self._catalogue.models()
        if options.model:
            model_info = read_encoder_info(self._settings, options.model)
            require_model(models, model_info.identity)
            models = {model_info.identity: models[model_info.identity]}
        fault: ConfigurationError | None = None
        for model in sorted(models, key=lambda each: -models[each]):
            jobs = self._catalogue.read(model, dataset=options.dataset, job_id=job_id)
            if jobs["dataset"].n_unique() > 1:
                names = ", ".join(jobs["dataset"].unique(maintain_order=True))
                raise ConfigurationError(f"There are jobs {job_id} in {names}; choose one with --dataset.")
            for key in jobs["key"]:  # several, if it was described in several ways
                try:
                    query, time_ms = vector_at(self._cache, key, time_s)
                except ConfigurationError as error:
                    fault = error
                else:
                    return model, [query], (key, time_ms)
        raise fault or ConfigurationError(
            f"No job {job_id}{_selection(options)} has been described; `reelabel results` lists those that have."
        )


def _selection(options: SearchOptions) -> str:
    parts = [f"{name} {value}" for name, value in (("dataset", options.dataset), ("task", options.task)) if value]
    return f" of {' and '.join(parts)}" if parts else ""


def _rows(text: str | None, result: SearchResult, keys: pl.Series, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return a row per moment, with the query, the first job on its video, and the number of jobs."""
    moments = pl.DataFrame(
        [(text, rank, each.score, each.time_ms / 1000, keys[each.file]) for rank, each in enumerate(result.moments, 1)],
        schema={"text": pl.String, "rank": pl.Int64, "score": pl.Float64, "time_s": pl.Float64, "key": pl.String},
        orient="row",
    )
    first = jobs.group_by("key", maintain_order=True).agg(
        pl.col("dataset", "job_id", "task", "video_uri", "video_state").first(), pl.len().cast(pl.Int64).alias("jobs")
    )
    columns = ("text", "rank", "score", "dataset", "job_id", "task", "video_uri", "video_state", "time_s", "jobs")
    return moments.join(first, on="key", how="left", maintain_order="left").select(columns)


def _with_states(jobs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Check the videos of jobs, each once; return the jobs with the state of each video.

    `video_state` is `unchanged`, `replaced` or `gone`; null if it cannot be determined now.
    """
    objects = video_store(settings.model_copy(update={"web": replace(settings.web, max_attempts=1, timeout_s=5.0)}))

    def current(uri: str) -> str | None:
        try:
            _require_whole_uri(uri)
            return stat_video(objects, uri).fingerprint
        except VideoMissingError:
            return _GONE
        except ReelabelError:
            return None

    uris = jobs["video_uri"].unique()
    with ThreadPoolExecutor(_MAX_CONCURRENT_LOOKS) as threads:
        found = dict(zip(uris, threads.map(current, uris), strict=True))
    states = {_GONE: _GONE, None: None}
    pairs = zip(map(found.get, jobs["video_uri"]), jobs["source_fingerprint"], strict=True)
    shown = [states.get(now, "unchanged" if now == then else _REPLACED) for now, then in pairs]
    return jobs.with_columns(video_state=pl.Series(shown, dtype=pl.String))


def _print_table(found: _QueryResult, *, title: str) -> None:
    if found.rows.is_empty():
        of = f" for {title}" if title else ""
        print_line(f"Nothing found{of} among {pluralize(found.result.rows, 'frame')}.")
        return
    cells = []
    for row in found.rows.iter_rows(named=True):
        job = row["job_id"] if row["jobs"] == 1 else f"{row['job_id']} and {row['jobs'] - 1:,} more"
        state = f" ({row['video_state']})" if row["video_state"] in {_GONE, _REPLACED} else ""
        cells.append((row["score"], f"{row['time_s']:.3f} s", job, row["video_uri"] + state))
    OUT.print(make_table(("score", "time", "job", "video"), cells, title=title))
    print_line(f"{pluralize(len(found.rows), 'moment')} of {pluralize(found.result.rows, 'frame')}.")


def fetch_pictures(found: pl.DataFrame, settings: Settings) -> tuple[Picture, ...]:
    """Fetch the frames of moments; one that cannot be fetched has an error instead of its image."""
    sampling = Sampling(sampler="uniform", num_frames=1, max_pixels=_SHEET_PIXELS, size_multiple_px=28)
    pictures = []
    with decode_pool(settings, processes=1) as pool:
        reader = uncached_reader(settings, pool)
        for row in found.iter_rows(named=True):
            uri, time_s = row["video_uri"], row["time_s"]
            lines = (f"{row['score']:.3f}   {time_s:.3f} s", row["job_id"], uri.rpartition("/")[2])
            try:
                image = scale(_fetch_frame(reader, row, sampling), box_px=_BOX_PX)
            except ReelabelError as error:
                pictures.append(Picture(lines=lines, error=error.message))
            else:
                pictures.append(Picture(lines=lines, image=image))
    return tuple(pictures)


def _require_whole_uri(uri: str) -> None:
    scheme = scheme_of(uri)
    if scheme == INLINE_SCHEME or (scheme in WEB_SCHEMES and uri.endswith("...")):
        raise VideoRefusedError("No frame: the video was given as a signed or inline URI, which is not stored.")


def _fetch_frame(reader: VideoReader, row: Mapping[str, Any], sampling: Sampling) -> npt.NDArray[np.uint8]:
    """Fetch the frame of a moment; shape (H, W, 3)."""
    _require_whole_uri(row["video_uri"])
    if row["video_state"] == _REPLACED:
        raise VideoRefusedError("No frame: the video was replaced after it was described; describe it again.")
    info = stat_video(reader.objects, row["video_uri"])
    return reader.fetch(info, sampling, segment=Segment.of(row["time_s"], row["time_s"] + _FRAME_S)).frames[0]
