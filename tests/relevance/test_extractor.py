"""A question is shown the frames that it is about, exactly those of the file, and embeds no frame twice."""

import numpy as np
import pytest

from flows.shard.extract import prepare_view
from infra.settings import StoreSettings
from reelabel.errors import SamplingRefusedError, VideoMissingError
from reelabel.extract import extract_local
from reelabel.frames.cache import FrameCache
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from tasks.demo.clips import FPS, Encoding, write_clip
from tasks.domain import EmbeddingSpec, Job, ModelIdentity, View, views_of
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.vector_file import VectorCache
from tasks.embedding.video import VideoEmbedder
from tasks.frame_cache.extractor import FrameExtractor
from tasks.relevance import RelevantExtractor
from tests.description.colours import INFO
from tests.relevance.colours import ReadingEncoder

SAMPLING = Sampling(sampler="relevant", num_frames=4, max_pixels=3136)
LENGTH_S, RED_S, GREEN_S = 24, (13, 17), (5, 8)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A blue clip that is green and red for a while, in containers whose clocks begin at zero and later."""
    frames = np.zeros((LENGTH_S * FPS, 32, 32, 3), np.uint8)
    frames[..., 2] = 200
    for (start_s, end_s), channel in ((GREEN_S, 1), (RED_S, 0)):
        frames[start_s * FPS : end_s * FPS] = np.eye(3)[channel] * 200
    folder = tmp_path_factory.mktemp("clips")
    for container in ("mp4", "ts"):
        encoding = Encoding(container=container, codec="libx264", gop=32, b_frames=2)
        write_clip(folder / f"clip.{container}", frames, encoding)
    return {container: str(folder / f"clip.{container}") for container in ("mp4", "ts")}


@pytest.fixture
def encoder():
    return ReadingEncoder()


@pytest.fixture
def extractor(tmp_path, pool, encoder):
    objects = ObjectStore(StoreSettings())
    common = {"objects": objects, "cache": FrameCache(objects, f"file://{tmp_path}"), "pool": pool, "limits": Limits()}
    plain = FrameExtractor(**common, sampling=SAMPLING)
    embedder = VideoEmbedder(
        extractor=plain,
        cache=VectorCache(objects=objects, root_uri=f"file://{tmp_path}"),
        frames=FrameBatcher(encoder=encoder, batch_frames=64),
        spec=EmbeddingSpec(model=ModelIdentity(name="colours")),
        info=INFO,
    )
    return RelevantExtractor.of(plain, embedder, encoder)


def view_of(uri, *choices, prompt="Is it there?", **segment):
    job = Job(job_id="a", video_uri=uri, prompt=prompt, choices=choices, **segment)
    return views_of(job, SAMPLING)[0]


def shown_s(video):
    return [int(time_ms) / 1e3 for time_ms in video.provenance.chosen_ms.split(",")]


@pytest.mark.parametrize("container", ["mp4", "ts"])
def test_the_frames_that_the_question_is_about_are_shown_exactly(extractor, clips, container):
    uri = clips[container]
    every = extract_local(uri, sampling=Sampling(sampler="uniform", num_frames=-1), limits=Limits())
    since_s = every.selection.time_s - every.selection.time_s[0]

    video = prepare_view(extractor, view_of(uri, "red"))

    frames = extractor.cache.find(video.identity)
    rows = [int(np.abs(every.selection.time_s - time_s).argmin()) for time_s in shown_s(video)]
    assert all(RED_S[0] <= since_s[row] < RED_S[1] for row in rows)
    np.testing.assert_allclose(frames.selection.time_s, every.selection.time_s[rows])
    assert np.abs(frames.unique.astype(int)[..., 0] - 200).max() < 40  # red, whatever the codec rounds
    assert (video.provenance.sampler, video.provenance.frames_used) == ("relevant", 4)
    assert video.identity.sampling.times_ms == tuple(int(text) for text in video.provenance.chosen_ms.split(","))


def test_how_many_of_how_many_were_chosen_is_reported_and_how_long_there_is_none(extractor, clips):
    note = prepare_view(extractor, view_of(clips["mp4"], "red")).provenance.decode_note

    assert note.startswith("4 of 40 frames chosen by the question, the best of which is at 13.")
    assert "at most 13.1 s without one" in note


def test_a_second_question_embeds_no_frame_and_equal_ones_share_a_frame_file(extractor, clips, encoder):
    first = prepare_view(extractor, view_of(clips["mp4"], "red"))
    embedded = encoder.images_embedded

    other = prepare_view(extractor, view_of(clips["mp4"], "green"))
    again = prepare_view(extractor, view_of(clips["mp4"], "red", prompt="And now?"))

    assert embedded == encoder.images_embedded == 48
    assert all(GREEN_S[0] <= time_s < GREEN_S[1] for time_s in shown_s(other))
    assert again.was_cached
    assert again.identity == first.identity != other.identity
    assert (first.provenance.frames_decoded > again.provenance.frames_decoded, again.provenance.decode_ms) == (True, 0)
    assert (first.provenance.embed_ms > 0, again.provenance.embed_ms) == (True, 0)


def test_what_was_asked_before_is_not_embedded_again(extractor, clips, encoder):
    for _ in range(2):
        prepare_view(extractor, view_of(clips["mp4"], "red", "blue"))

    assert encoder.texts == ["red Is it there?", "blue Is it there?"]


def test_only_frames_of_the_segment_are_shown(extractor, clips):
    video = prepare_view(extractor, view_of(clips["mp4"], "green", start_s=10.0, end_s=16.0))

    assert all(10 <= time_s <= 16 for time_s in shown_s(video))


def test_a_question_that_the_model_cannot_read_whole_is_reported(extractor, clips):
    note = prepare_view(extractor, view_of(clips["mp4"], "red", prompt="a b c d e f")).provenance.decode_note

    assert "the question has 7 tokens, of which the image-text model reads the first 4" in note


def test_frames_that_kill_the_encoder_fail_their_video_in_a_sentence(extractor, tmp_path):
    white = np.full((FPS, 32, 32, 3), 255, np.uint8)
    write_clip(tmp_path / "white.mp4", white, Encoding(container="mp4", codec="libx264", gop=FPS))

    with pytest.raises(SamplingRefusedError, match="The sampler relevant cannot read the frames of this video"):
        prepare_view(extractor, view_of(str(tmp_path / "white.mp4"), "red"))


def test_a_missing_video_fails(extractor, tmp_path):
    with pytest.raises(VideoMissingError):
        prepare_view(extractor, view_of(f"{tmp_path}/gone.mp4", "red"))


def test_a_frame_file_that_is_altered_is_regenerated(extractor, clips, tmp_path):
    view = view_of(clips["mp4"], "red")
    first = prepare_view(extractor, view)
    path = tmp_path / first.identity.key
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))

    again = prepare_view(extractor, view)

    assert (again.was_cached, again.identity) == (False, first.identity)
    assert again.rewritten


def test_questions_that_name_different_things_have_different_views():
    first, other = view_of("a.mp4", "red"), view_of("a.mp4", "green")

    assert first == view_of("a.mp4", "red")
    assert len({first, other, View("a.mp4")}) == len({first.name, other.name, View("a.mp4").name}) == 3
    assert views_of(Job(job_id="a", video_uri="a.mp4", prompt="?", choices=("x", "y")), Sampling())[0].texts == ()
