"""Videos from their files to their descriptions, by a model of colours."""

import itertools
import struct
from contextlib import contextmanager
from dataclasses import replace

import av
import numpy as np
import pytest
from PIL import Image

from infra.errors import EngineLostError
from reelabel.errors import (
    NoFramesError,
    SamplingRefusedError,
    VideoMissingError,
    VideoUnavailableError,
    VideoUnreadableError,
)
from reelabel.options import Limits
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.source import StoredSource
from reelabel_engine.errors import InferenceError
from tasks.description import describer as describer_module
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.domain import DescribeSpec, ModelIdentity
from tasks.embedding import pieces as piece_sizes
from tasks.frame_cache.look import look_at
from tasks.survey.cost import stated_length_s
from tests.clips import blank_packet
from tests.description.colours import ColourEncoder, colour_describer
from tests.factories import make_extractor, make_job

FPS = 8
SPEC = DescribeSpec(
    model=ModelIdentity(name="colours"),
    seconds_per_chunk=2,
    frames_per_chunk=4,
    tags="t",
    captions="c",
    top_k=2,
    scene_threshold=10.0,
)
RGB = {"red": (200, 10, 10), "green": (10, 200, 10), "blue": (10, 10, 200), "white": (255, 255, 255)}


def film(path, *scenes, fps=FPS, first_s=0, pause_s=0, **options):
    """Write scenes, each a colour and seconds at `FPS`, as a video whose first frame is at some time.

    Between two scenes, nothing is shown for `pause_s`.
    """
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream("libx264", rate=fps, options={"g": str(FPS), "bf": "0", "crf": "10"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        numbers = itertools.count(first_s * fps)
        for scene, (colour, seconds) in enumerate(scenes):
            for _ in range(round(seconds * FPS)):
                frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), RGB[colour], np.uint8), format="rgb24")
                frame.pts = next(numbers) + scene * pause_s * fps
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def job(path, job_id="film", **changed):
    return make_job(path, job_id=job_id, prompt="", choices=(), **changed)


@pytest.fixture
def encoder():
    return ColourEncoder()


@pytest.fixture
def describer_of(tmp_path, pool, encoder):
    root = f"file://{tmp_path}/cache"
    extractor = make_extractor(tmp_path, pool, sampling=SPEC.sampling(max_pixels=2048))

    def make(spec=SPEC, tags=("red", "green", "blue")):
        return colour_describer(extractor, root, spec, tags=tags, encoder=encoder)

    return make


def test_a_film_is_tagged_chunk_by_chunk_and_its_cut_is_found(describer_of, tmp_path):
    found = describer_of().describe(job(film(tmp_path / "a.mp4", ("red", 4), ("blue", 5))), 3)

    parts = found.description.chunks
    assert [(part.chunk.start_s, part.chunk.end_s, part.frames) for part in parts] == [
        (0, 2, 4),
        (2, 4, 4),
        (4, 6, 4),
        (6, 8, 4),
        (8, 9, 4),
    ]
    assert [part.tags[0].text for part in parts] == ["red", "red", "blue", "blue", "blue"]
    assert [tag.text for tag in found.description.tags] == ["blue", "red"]
    assert found.description.tags[0].probability == pytest.approx(
        1 / (1 + np.exp(5 - 10 * found.description.tags[0].score))
    )
    assert found.description.caption.text == "red"
    [change] = found.changes.changes
    assert change.since_ms < 4000 <= change.pts_ms
    at_s = change.pts_ms / 1000
    assert [(scene.start_s, scene.end_s) for scene in found.scenes] == [(0, at_s), (at_s, 9)]
    assert [change.chunk for change in found.chunk_changes()] == [2]
    assert (found.duration_s, found.frames, found.shard_index, found.was_cached) == (9, 20, 3, False)


def test_frames_are_the_middles_of_equal_parts_at_their_true_times(describer_of, tmp_path):
    embedded = describer_of().embedder.embed(job(film(tmp_path / "a.mp4", ("red", 4))))

    assert embedded.embeddings.pts_ms.tolist() == [250, 750, 1250, 1750, 2250, 2750, 3250, 3750]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_recording_that_begins_late_is_as_long_as_its_frames(describer_of, tmp_path, suffix):
    clip, describer = film(tmp_path / f"a.{suffix}", ("red", 4), ("blue", 5), first_s=5), describer_of()

    found = describer.describe(job(clip), 0)

    assert (found.duration_s, [part.frames for part in found.description.chunks]) == (9, [4] * 5)
    assert stated_length_s(look_at(describer.embedder.extractor, str(clip)), Limits()) == 9


def test_a_frame_after_the_stated_end_is_within_the_video(describer_of, tmp_path):
    clip = film(tmp_path / "a.avi", ("red", 4))
    data = bytearray(clip.read_bytes())
    for name, at in ((b"avih", 24), (b"strh", 40)):  # where their frames are counted
        struct.pack_into("<I", data, data.index(name) + at, 2 * FPS)
    clip.write_bytes(data)

    found = describer_of().describe(job(clip), 0)

    assert found.duration_s >= found.scenes[-1].end_s > 3
    assert found.description.chunks[-1].chunk.end_s == found.duration_s


def test_a_segment_is_described_alone_and_its_times_are_those_of_the_video(describer_of, tmp_path):
    clip = film(tmp_path / "a.mp4", ("red", 4.5), ("green", 1.5), ("blue", 4))

    found = describer_of().describe(job(clip, start_s=3.0, end_s=5.5), 0)

    assert [(part.chunk.start_s, part.chunk.end_s, part.tags[0].text) for part in found.description.chunks] == [
        (3, 5, "red"),
        (5, 5.5, "green"),
    ]
    [change] = found.changes.changes
    assert change.since_ms < 4500 <= change.pts_ms
    at_s = change.pts_ms / 1000
    assert [(scene.start_s, scene.end_s) for scene in found.scenes] == [(3, at_s), (at_s, 5.5)]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="another bank"),
        pytest.param({"top_k": 1}, id="top k"),
        pytest.param({"method": "published", "scene_method": "published", "scene_threshold": 0.15}, id="published"),
        pytest.param({"scene_method": "ema", "scene_threshold": 0.3}, id="another threshold of ema"),
        pytest.param({"scene_threshold": 20.0}, id="another threshold of auto"),
    ],
)
def test_a_rerun_decodes_nothing_and_embeds_nothing(describer_of, encoder, tmp_path, pool, monkeypatch, changed):
    clip = job(film(tmp_path / "a.mp4", ("red", 4.5), ("blue", 4)))
    first = describer_of().describe(clip, 0)
    assert (first.cost.frames_embedded, encoder.images_embedded) == (20, 20)
    assert first.cost.frames_decoded > 0

    def refuse(*_arguments, **_options):
        raise AssertionError("a video was read")

    for name in ("extract", "extract_by_ranges", "read_index"):
        monkeypatch.setattr(pool, name, refuse, raising=True)
    again = describer_of(SPEC.model_copy(update=changed), tags=("blue", "green")).describe(clip, 0)

    assert encoder.images_embedded == 20
    assert (again.cost.frames_decoded, again.cost.frames_embedded, again.was_cached) == (0, 0, True)
    assert again.description.tags[0].text == "blue"
    assert len(again.changes.changes) >= 1


def test_a_video_is_looked_into_again_by_another_version_of_the_finder(describer_of, tmp_path, monkeypatch):
    clip = job(film(tmp_path / "a.mp4", ("red", 4.5), ("blue", 4)))
    with monkeypatch.context() as earlier:
        earlier.setattr(describer_module, "FINDER_VERSION", 0)
        first = describer_of().describe(clip, 0)

    again = describer_of().describe(clip, 0)

    assert (again.cost.frames_embedded, again.changes) == (0, first.changes)
    assert again.cost.frames_decoded > 0


def test_each_change_is_in_one_chunk_whatever_their_length(describer_of, tmp_path):
    spec = SPEC.model_copy(update={"seconds_per_chunk": 1.2345})  # its multiples are rounded up and down
    found = describer_of(spec).describe(job(film(tmp_path / "a.mp4", ("red", 9))), 0)
    every = tuple(SceneChange(pts_ms=at_ms, score=1.0, since_ms=at_ms) for at_ms in range(9000))

    found = replace(found, changes=SceneChanges(changes=every, method="ema"))

    changes, chunks = found.chunk_changes(), [part.chunk for part in found.description.chunks]
    assert [change.time_s for change in changes] == [each.pts_ms / 1000 for each in every]
    assert all(
        chunks[each.chunk].start_s - 0.001 <= each.time_s <= chunks[each.chunk].end_s + 0.001 for each in changes
    )
    frames_ms = np.split(found.pts_ms, np.cumsum([part.frames for part in found.description.chunks])[:-1])
    for each in changes:
        before = sum(frames_ms[each.chunk] < each.time_s * 1000)
        assert each.frame == min(before, max(0, len(frames_ms[each.chunk]) - 1))


def test_what_failed_for_now_is_looked_for_again(describer_of, tmp_path):
    clip, describer = film(tmp_path / "a.mp4", ("red", 4.5), ("blue", 4)), describer_of()
    info = describer.embedder.embed(job(clip)).info
    clip.rename(tmp_path / "away.mp4")

    gone = describer.describe(job(clip), 0, info)
    (tmp_path / "away.mp4").rename(clip)
    back = describer.describe(job(clip), 0, info)

    assert (gone.changes.method, bool(gone.changes.note)) == ("ema", True)
    assert back.changes.method == "index and ema"


def test_a_web_server_that_fails_while_cuts_are_found_is_asked_again(describer_of, tmp_path, monkeypatch):
    clip, describer = film(tmp_path / "a.mp4", ("red", 4.5), ("blue", 4)), describer_of()

    @contextmanager
    def unavailable(*_, **__):
        raise VideoUnavailableError("The server answers 503.")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(describer_module, "open_footage", unavailable)
        failed = describer.describe(job(clip), 0)
    again = describer.describe(job(clip), 0)

    assert (failed.changes.method, failed.changes.note) == ("ema", "The server answers 503.")
    assert again.changes.method == "index and ema"


def test_a_segment_between_two_frames_is_described_by_its_embedding(describer_of, tmp_path):
    clip = film(tmp_path / "a.mp4", ("red", 3), ("blue", 1))

    found = describer_of().describe(job(clip, start_s=2.01, end_s=2.1), 0)

    assert (found.frames, found.description.tags[0].text) == (1, "red")
    assert (found.changes.changes, found.changes.note) == ((), "The segment has no frames.")


def test_a_rerun_says_exactly_the_same(describer_of, tmp_path):
    clip = job(film(tmp_path / "a.mp4", ("red", 4.5), ("blue", 4)))

    first, again = (describer_of().describe(clip, 0) for _ in range(2))

    assert again.was_cached
    assert (again.description, again.scenes, again.changes) == (first.description, first.scenes, first.changes)


def test_long_videos_are_decoded_once_in_pieces_of_whole_chunks(describer_of, encoder, tmp_path, monkeypatch):
    clip = film(tmp_path / "a.mp4", ("red", 10), ("green", 10), ("blue", 5))
    whole = describer_of().describe(job(clip), 0)
    monkeypatch.setattr(piece_sizes, "PIECE_BYTES", 3 * 8 * 2048)
    encoder.requests.clear()

    pieces = describer_of(SPEC.model_copy(update={"model": ModelIdentity(name="another")})).describe(job(clip), 0)

    assert encoder.requests == [[8], [8], [8], [8], [8], [8], [4]]
    assert pieces.description == whole.description
    # Each piece begins at a keyframe here, so that no frame is decoded twice.
    assert pieces.cost.frames_decoded <= 25 * FPS + 50


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_pieces_in_which_no_frame_begins_cost_nothing_and_are_no_fault(
    describer_of, encoder, tmp_path, monkeypatch, suffix
):
    monkeypatch.setattr(piece_sizes, "PIECE_BYTES", 3 * 8 * 2048)

    found = describer_of().describe(job(film(tmp_path / f"a.{suffix}", ("red", 3), ("blue", 3), pause_s=60)), 0)

    assert (found.duration_s, found.decode_note) == (pytest.approx(66, abs=0.2), "")
    assert [change.since_ms // 1000 for change in found.changes.changes] == [2]
    assert encoder.images_embedded == found.cost.frames_embedded == found.frames


@pytest.mark.parametrize(
    ("suffix", "fps"),
    [
        pytest.param("mp4", FPS, id="damaged"),
        pytest.param("ts", FPS, id="MPEG-TS"),
        pytest.param("h264", 25, id="raw, which has 25 frames a second and no length"),
    ],
)
def test_a_video_that_decodes_only_from_its_beginning_has_the_frames_of_an_indexed_one(
    describer_of, encoder, tmp_path, monkeypatch, suffix, fps
):
    slower = fps / FPS  # of which the raw stream says nothing
    scenes = [("red", 10 * slower), ("green", 10 * slower), ("blue", 5 * slower)]
    indexed = describer_of().describe(job(film(tmp_path / "indexed.mp4", *scenes, fps=fps)), 0)
    clip = film(tmp_path / f"a.{suffix}", *scenes)
    if suffix == "mp4":
        blank_packet(clip, 3)
    monkeypatch.setattr(piece_sizes, "PIECE_BYTES", 3 * 8 * 2048)
    encoder.requests.clear()

    describer = describer_of()
    cost = describer.embedder.embed(job(clip)).cost
    found = describer.describe(job(clip), 0)

    assert sum(sum(request) for request in encoder.requests) == found.frames == 52
    assert found.description.chunks == indexed.description.chunks
    assert found.duration_s == indexed.duration_s == 25
    assert cost.frames_decoded <= 2 * 25 * fps + 8  # of the attempt on a damaged GOP
    assert cost.bytes_fetched == clip.stat().st_size


def test_an_image_is_a_video_of_one_frame(describer_of, tmp_path):
    Image.new("RGB", (64, 48), RGB["green"]).save(tmp_path / "a.png")

    found = describer_of().describe(job(tmp_path / "a.png"), 0)

    assert (found.frames, found.description.tags[0].text) == (1, "green")
    assert "segment" not in found.decode_note


@contextmanager
def open_as_if_remote(self, uri, roots=(), *, known=None):  # noqa: ARG001 - the signature of `ObjectStore.open`
    yield StoredSource(self, known or self.stat(uri))


def test_a_remote_video_that_is_fetched_whole_is_fetched_once_whatever_the_number_of_its_pieces(
    describer_of, tmp_path, monkeypatch
):
    clip = film(tmp_path / "a.mp4", ("red", 10), ("green", 10), ("blue", 5))
    monkeypatch.setattr(piece_sizes, "PIECE_BYTES", 3 * 8 * 2048)
    fetched, download = [], ObjectStore.download

    def counting(self, uri, path, **options):
        fetched.append(uri)
        return download(self, uri, path, **options)

    monkeypatch.setattr(ObjectStore, "download", counting)
    monkeypatch.setattr(ObjectStore, "open", open_as_if_remote)

    found = describer_of(SPEC.model_copy(update={"scene_method": "ema", "scene_threshold": 0.15})).describe(
        job(clip), 0
    )

    assert [part.tags[0].text for part in found.description.chunks] == ["red"] * 5 + ["green"] * 5 + ["blue"] * 3
    assert len(fetched) == 1


def test_keyframes_alone_are_an_option(describer_of, tmp_path):
    spec = SPEC.model_copy(update={"sampler": "keyframes"})

    embedded = describer_of(spec).embedder.embed(job(film(tmp_path / "a.mp4", ("red", 4), ("blue", 3))))

    assert embedded.embeddings.pts_ms.tolist() == [0, 1000, 2000, 3000, 4000, 5000, 6000]


@pytest.mark.parametrize("seconds", [0.5, 1 / FPS])
def test_a_video_shorter_than_a_chunk_or_of_one_frame_is_one_chunk(describer_of, tmp_path, seconds):
    found = describer_of().describe(job(film(tmp_path / "a.mp4", ("green", seconds))), 0)

    assert [part.frames for part in found.description.chunks] == [min(4, round(seconds * FPS))]
    assert found.description.tags[0].text == "green"
    assert found.duration_s == pytest.approx(seconds, abs=0.01)
    assert found.changes.changes == ()


def test_a_video_that_is_cut_in_its_middle_is_described_up_to_there(describer_of, tmp_path):
    clip = film(tmp_path / "a.mp4", ("red", 6), ("blue", 6), movflags="+faststart")
    clip.write_bytes(clip.read_bytes()[: clip.stat().st_size * 6 // 10])

    found = describer_of().describe(job(clip), 0)

    assert "cut short" in found.decode_note
    assert found.duration_s < 12
    assert all(part.frames for part in found.description.chunks)
    assert found.description.chunks[0].tags[0].text == "red"


def test_a_segment_past_the_end_fails_with_a_sentence(describer_of, tmp_path):
    with pytest.raises(SamplingRefusedError, match="starts at 30 s, but the video ends at 4 s"):
        describer_of().describe(job(film(tmp_path / "a.mp4", ("red", 4)), start_s=30.0), 0)


def test_a_file_that_is_no_video_or_is_gone_fails_with_a_sentence(describer_of, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")

    with pytest.raises(VideoUnreadableError):
        describer_of().describe(job(tmp_path / "text.mp4"), 0)
    with pytest.raises(VideoMissingError, match="There is no video at"):
        describer_of().describe(job(tmp_path / "gone.mp4"), 0)


def test_a_video_without_frames_fails_with_a_sentence(describer_of, tmp_path):
    clip = film(tmp_path / "a.mp4", ("red", 1))
    data = clip.read_bytes()
    at = data.index(b"mdat") + 4
    clip.write_bytes(data[:at] + bytes(400) + data[at + 400 :])

    with pytest.raises((NoFramesError, VideoUnreadableError)):
        describer_of().describe(job(clip), 0)


def test_frames_that_kill_the_encoder_fail_their_own_video(describer_of, encoder, tmp_path):
    describer = describer_of()

    with pytest.raises(InferenceError, match="The frames of this video crash the model's process"):
        describer.describe(job(film(tmp_path / "white.mp4", ("white", 2))), 0)
    assert describer.describe(job(film(tmp_path / "a.mp4", ("red", 2))), 0).frames == 4

    encoder.is_dead = True
    with pytest.raises(EngineLostError):
        describer.describe(job(film(tmp_path / "b.mp4", ("red", 3))), 0)


def test_an_altered_embedding_file_is_regenerated_and_reported(describer_of, encoder, tmp_path):
    describer, clip = describer_of(), job(film(tmp_path / "a.mp4", ("red", 2)))
    key = describer.embedder.embed(clip).identity.key
    path = tmp_path / "cache" / key
    path.write_bytes(path.read_bytes()[:-9])

    again = describer.describe(clip, 0)

    assert "embedding file rewritten" in again.decode_note
    assert again.rewritten
    assert encoder.images_embedded == 8
    assert replace(again, cost=describer.describe(clip, 0).cost).frames == 4


def transcribed(chunks, tags, captions, top_k):
    """The published method, written down as its formulas stand; each chunk is (start, duration, vectors)."""
    by_tag, captions_found, changes, average = {}, [], [], None
    for start_s, duration_s, vectors in chunks:
        pooled = vectors.mean(axis=0) / np.linalg.norm(vectors.mean(axis=0))
        for index in np.argsort(-(tags @ pooled))[:top_k]:
            by_tag.setdefault(int(index), []).append(float(tags[index] @ pooled))
        captions_found.append(((captions @ pooled).max(), int((captions @ pooled).argmax())))
        for number, vector in enumerate(vectors):
            average = vectors[0] if average is None else average
            if max(0.0, 1 - vector @ average) >= 0.15:
                changes.append(start_s + number / max(1, len(vectors) - 1) * duration_s)
            average = 0.9 * average + 0.1 * vector
            average = average / np.linalg.norm(average)
    means = sorted(((np.mean(scores), index) for index, scores in by_tag.items()), reverse=True)[:top_k]
    return means, max(captions_found), changes


def test_the_published_method_is_repeated_exactly(describer_of, tmp_path):
    spec = SPEC.model_copy(update={"method": "published", "scene_method": "published", "scene_threshold": 0.15})
    describer = describer_of(spec)
    clip = job(film(tmp_path / "a.mp4", ("red", 3), ("green", 4), ("blue", 2), ("green", 0.5)))

    found = describer.describe(clip, 0)

    vectors = describer.embedder.embed(clip).embeddings.vectors
    starts, lengths = [0, 2, 4, 6, 8], [2, 2, 2, 2, 1.5]
    chunks = list(zip(starts, lengths, vectors.reshape(5, 4, 3), strict=True))
    tags, (best, index), changes = transcribed(chunks, describer.tags.vectors, describer.captions.vectors, 2)
    assert [(tag.text, tag.score) for tag in found.description.tags] == [
        (describer.tags.texts[number], pytest.approx(score, abs=1e-6)) for score, number in tags
    ]
    assert found.description.caption.text == describer.captions.texts[index]
    assert found.description.caption.score == pytest.approx(best, abs=1e-6)
    assert [change.pts_ms for change in found.changes.changes] == [round(at * 1000) for at in changes]
    assert len(changes) > 3  # one cut is reported several times
    ours = describer_of().describe(clip, 0)
    assert len(ours.changes.changes) == 3
