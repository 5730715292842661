"""Whatever error is raised about one video, question or message, at whichever call, fails that one alone."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from shutil import rmtree
from types import SimpleNamespace
from uuid import uuid4
from zipfile import ZipFile

import pytest
from fastapi.testclient import TestClient

from flows.serve.app import make_app
from flows.serve.requests import classify
from flows.serve.requests.classify import Classifier
from flows.serve.requests.handle import open_service
from flows.shard.answer import infer_shard
from flows.shard.context import InferenceContext
from flows.shard.describe import DescriptionContext, describe_shard
from flows.shard.extract import FrameStream, extract_shard
from infra.settings import ExtractSettings, ServeSettings, Settings, StoreSettings
from reelabel.frames.cache import FrameCache
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from tasks.domain import DescribeSpec, ModelIdentity, RunSpec, Shard
from tasks.frame_cache.extractor import FrameExtractor
from tasks.plans.lease import Lease
from tasks.results.write import RunKey
from tasks.survey.clips import Clip, ManifestClips, Tags
from tasks.survey.cost import cut_seen
from tasks.survey.measure import measure_rates
from tasks.survey.read import read_clips
from tasks.survey.survey import compile_survey
from tests.clips import write_clip
from tests.description.colours import ColourEncoder, colour_describer
from tests.factories import ANSWER, CHOICES, make_job
from tests.live.client import Client, config, frame
from tests.live.conftest import _impatient, begin  # noqa: F401 - fixtures
from tests.raised_calls import raised

SEED = 37
MARK = "marked"
SAMPLING = Sampling(num_frames=2)
TRIALS = [pytest.param(2, id="a few"), pytest.param(30, id="many", marks=pytest.mark.system)]


class Sure:
    """Answers every question at once."""

    times = SimpleNamespace(busy_ms=1.0, waiting_for_input_ms=0.0, restart_ms=0.0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_ready(self):
        pass

    def confirm_model(self):
        pass

    def answer(self, batch):
        return [self._answer(question) for question in batch.questions]

    def _answer(self, _question):
        return ANSWER


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Clips of their own, one of them marked, and an archive of two."""
    folder = tmp_path_factory.mktemp("videos")
    for name in (f"{MARK}.mp4", "other.mp4"):
        write_clip(folder / name, frames=30, gop=15, fps=12)
    with ZipFile(folder / "archive.zip", "w") as archive:
        for name in (f"{MARK}.mp4", "other.mp4"):
            archive.write(folder / name, name)
    return folder


@pytest.fixture
def make_extractor(folder, pool):
    """Return a function that makes an extractor with an empty cache."""

    def make(**options):
        rmtree(folder / "cache", ignore_errors=True)
        cache = FrameCache(ObjectStore(), f"file://{folder}/cache")
        return FrameExtractor(
            objects=ObjectStore(archive_indexes=cache),
            cache=cache,
            pool=pool,
            sampling=SAMPLING,
            limits=Limits(),
            **options,
        )

    return make


def jobs_on(folder, mark, **options):
    """Return jobs, one of them marked, on videos of their own and in an archive."""
    names = {
        "video": [f"{MARK}.mp4", "other.mp4", "archive.zip#other.mp4"],
        "member": [f"archive.zip#{MARK}.mp4", "archive.zip#other.mp4", "other.mp4"],
        "question": ["other.mp4", "other.mp4", "archive.zip#other.mp4"],
    }[mark]
    prompts = [MARK if mark == "question" else "?", "?", "?"]
    return tuple(
        make_job(f"{folder}/{name}", job_id=f"{prompts[at]} {at}", prompt=prompts[at], **options)
        for at, name in enumerate(names)
    )


def check(calls, codes):
    """Check that all but at most one have ended well, or but the members of one archive, whose index is read once."""
    failed = codes.total() - codes["ok"] - max(0, codes["archive_unreadable"] - 1)
    assert failed <= (1 if calls.where else 0), (calls.at, calls.error, codes)


class Rows:
    """What is written of shards."""

    def __init__(self):
        self.run = RunKey(run_id=uuid4(), dataset="d", spec_id="s", host="h")
        self.engine, self.codes, self.ids = None, Counter(), []

    def write(self, results, failures, *, descriptions=(), **_more):
        for each in (*results, *descriptions, *failures):
            self.codes[getattr(each, "code", "ok")] += 1
            self.ids.append(each.job.job_id)
        return {}


LEASE = Lease(plan_id=uuid4(), shard_index=0, token=1, jobs=3)
# These are given one video, or question, and go on with the others whatever is raised in them.
BOUNDARIES = frozenset(
    {
        "reelabel/unexpected.py:failing_alone",
        "flows/shard/extract.py:extract_views.<locals>.prepare",
        "flows/shard/extract.py:_prepare",
        "flows/shard/extract.py:FrameStream.add",
        "flows/shard/extract.py:cut_into_chunks.<locals>.length_of",
        "flows/shard/infer.py:_read",
        "flows/shard/infer.py:_failing_alone",
        "flows/shard/describe.py:_failing",
        "tasks/survey/read.py:_read_batch.<locals>.look",
        "tasks/survey/cost.py:cut_seen",
        "tasks/live/session.py:Session.handle",
        "tasks/live/session.py:Session._put",
    }
)


# They work for all: group jobs, order views, read an archive's index, cut jobs as was tried with each, count, and name
# what a message is about.
ASIDE = (
    "flows/shard/infer.py:_Arrivals",
    "flows/shard/extract.py:extract_views.<locals>.<lambda>",
    "reelabel/sources/members.py:RangedFile.",
    "reelabel/sources/video_file.py:Seekable.",
    "reelabel/sources/object_info.py:redact_uri",
    "tasks/domain/chunks.py:cut_shard",
    "tasks/domain/job.py:",
    "tasks/survey/survey.py:_",
    "tasks/survey/survey.py:compile_survey.<locals>.<lambda>",
    "tasks/survey/survey.py:compile_survey.<locals>.<genexpr>.<lambda>",
)
OPTIONS = {"mark": MARK, "seed": SEED, "boundaries": BOUNDARIES, "aside": ASIDE}


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize(
    ("mark", "options"),
    [("video", {}), ("member", {}), ("question", {}), ("video", {"chunk_s": 2.0, "asks_again": True})],
    ids=["video", "member", "question", "chunks"],
)
def test_a_run_loses_one_question(folder, make_extractor, mark, options, trials):
    spec = RunSpec(model=ModelIdentity(name="nobody"), sampling=SAMPLING)
    if options:
        spec = spec.model_copy(update={"chunk_s": options["chunk_s"], "chunk_rule": "any:yes"})
    shard = Shard(index=0, jobs=jobs_on(folder, mark, **options))

    def run():
        extractor, stream, rows = make_extractor(), FrameStream(), Rows()
        context = InferenceContext(
            spec=spec, backend=Sure(), batch_bytes=1024**2, extractor=extractor, escalate_below=0.9, writer=rows
        )
        extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 2), stream)
        infer_shard.fn(0, shard, stream, LEASE, context)
        return rows

    for calls, rows in raised(run, trials=trials, **OPTIONS):
        assert sorted(rows.ids) == sorted(job.job_id for job in shard.jobs), calls.where
        check(calls, rows.codes)


@pytest.fixture
def make_describer(make_extractor, folder):
    """Return a function that makes a describer with an empty cache."""
    spec = DescribeSpec(
        model=ModelIdentity(name="colours"),
        seconds_per_chunk=2,
        frames_per_chunk=2,
        tags="t",
        captions="c",
        top_k=2,
        scene_threshold=10.0,
    )

    def make():
        return colour_describer(make_extractor(), f"file://{folder}/cache", spec, tags=("red", "blue"))

    return make


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("mark", ["video", "member"])
def test_a_run_that_describes_loses_one_video(folder, make_describer, mark, trials):
    shard = Shard(index=0, jobs=jobs_on(folder, mark))

    def run():
        rows = Rows()
        with ThreadPoolExecutor(3) as workers:
            context = DescriptionContext(
                describer=make_describer(), encoder=ColourEncoder(), writer=rows, workers=workers
            )
            describe_shard.fn(0, shard, LEASE, context)
        return rows

    for calls, rows in raised(run, trials=trials, **OPTIONS):
        assert sorted(rows.ids) == sorted(job.job_id for job in shard.jobs), calls.where
        check(calls, rows.codes)


@pytest.mark.parametrize("trials", TRIALS)
def test_a_survey_loses_one_video(folder, make_extractor, trials):
    names = (f"{MARK}.mp4", "other.mp4", "archive.zip#other.mp4")
    clips = [Clip(uri=f"{folder}/{name}") for name in names]
    drawn = ManifestClips(drawn=clips, clips=3, videos=3, jobs=3, clips_by_tags={Tags(): 3})

    def run():
        reader = make_extractor()
        seen = read_clips(clips, reader)
        rates = measure_rates(seen, reader, SAMPLING, processes=1, encoding="zstd", limit_s=10)
        seen = [cut_seen(each, chunk_s=2.0, limits=Limits()) for each in seen]
        return compile_survey("jobs.parquet", drawn, seen, SAMPLING, rates=rates, took_s=1.0)

    for calls, survey in raised(run, trials=trials, **OPTIONS):
        failed = {each.name: each.seen for each in survey.failed}
        check(calls, Counter(ok=survey.seen - sum(failed.values()), **failed))
        assert survey.seen == 3


@pytest.mark.parametrize("trials", TRIALS)
def test_a_service_loses_one_request(folder, pool, trials):
    question = {"prompt": "?", "choices": [*CHOICES]}
    names = (f"{MARK}.mp4", "archive.zip#other.mp4", "other.mp4")

    def run():
        rmtree(folder / "cache", ignore_errors=True)
        settings = Settings(
            home=folder,
            store=StoreSettings(uri=f"file://{folder}/cache"),
            serve=ServeSettings(max_requests=2),
            extract=ExtractSettings(processes=1, allow_roots=(folder,)),
        )
        with ExitStack() as stack:
            service = stack.enter_context(open_service(settings))
            classifier = stack.enter_context(Classifier(settings, pool=pool, database=None, engine=Sure()))
            app = make_app(service, [classify.classify_router(partial(classify.answer, classifier))])
            client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
            return [client.post("/v1/classify", json=question | {"video_uri": f"{folder}/{name}"}) for name in names]

    for calls, answers in raised(run, trials=trials, **OPTIONS):
        codes = ["ok" if each.status_code == 200 else each.json()["code"] for each in answers]
        check(calls, Counter(codes))
        assert codes[1:] == ["ok", "ok"]
        assert {each.status_code for each in answers} <= {200, 422, 500}


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("mark", ["frame", "query", "standing"])
def test_a_session_loses_one_message(begin, mark, trials):  # noqa: F811
    ids = ["0", MARK if mark == "frame" else "1", "2"]
    frames = [frame(120 * at, time_s=at, frame_id=each) for at, each in enumerate(ids)]
    queries = [{"type": "video.query", "text": "?", "query_id": each} for each in ("first", "other", "last")]
    if mark == "query":
        queries[1] |= {"text": MARK, "query_id": MARK}
    standing = {"type": "video.query", "query_id": "s", "choices": CHOICES, "every_s": 1}
    standing |= {"text": MARK, "query_id": MARK} if mark == "standing" else {"text": "?"}

    def run():
        client = Client(begin().open(config()))
        for each in (standing, *frames, *queries, {"type": "video.done"}):
            client.session.handle(json.dumps(each))
        client.until("session.closed")
        return client.everything()

    for calls, events in raised(run, trials=trials, **OPTIONS):
        kinds = Counter(each["type"] for each in events)
        errors = [each["code"] for each in events if each["type"] == "error"]
        assert kinds["session.done"] == 1, (calls.where, kinds)
        check(calls, Counter(errors))
        ended = [each for each in events if each["type"] in {"video.frame.ack", "response.done", "error"}]
        answered = {each.get("frame_id") or each.get("query_id") for each in ended}
        assert {"0", "2", "first", "last"} <= answered, (calls.where, kinds)
        assert MARK in answered or errors, (calls.where, kinds)
        assert "s" in answered or mark == "standing", (calls.where, kinds)
