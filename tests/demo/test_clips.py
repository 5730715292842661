"""The demo's clips are real videos with the requested keyframes."""

from itertools import pairwise

import av
import numpy as np
import polars as pl
import pytest

from tasks.demo.clips import ENCODINGS, FPS, draw_clip, make_demo, write_clip
from tasks.demo.shapes import QUESTIONS


def decode(path):
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


@pytest.mark.parametrize(
    "encoding", ENCODINGS, ids=lambda each: f"{each.container}-{each.codec}-gop{each.gop}-b{each.b_frames}"
)
def test_every_encoding_starts_each_gop_with_its_only_keyframe(tmp_path, encoding):
    path = tmp_path / f"clip.{encoding.container}"
    _, pixels = draw_clip(np.random.default_rng(0))
    write_clip(path, pixels, encoding)

    frames = decode(path)

    keyframes = [index for index, frame in enumerate(frames) if frame.key_frame]
    assert keyframes == list(range(0, len(pixels), encoding.gop))
    assert len(keyframes) >= 4
    assert any(frame.pict_type == av.video.frame.PictureType.B for frame in frames) == bool(encoding.b_frames)


def test_a_decoded_clip_looks_like_its_source(tmp_path):
    _, pixels = draw_clip(np.random.default_rng(1))
    write_clip(tmp_path / "clip.mp4", pixels, ENCODINGS[0])

    decoded = np.stack([frame.to_ndarray(format="rgb24") for frame in decode(tmp_path / "clip.mp4")])

    assert np.abs(decoded.astype(int) - pixels).mean() < 8


def test_the_demo_asks_three_questions_about_every_clip(tmp_path):
    manifest = make_demo(tmp_path, seed=1, clips=8, uri_prefix="s3://demo/clips/")

    assert manifest.height == 24
    assert manifest["job_id"].n_unique() == 24
    assert set(manifest["task"]) == set(QUESTIONS)
    names = {uri.removeprefix("s3://demo/clips/") for uri in manifest["video_uri"]}
    assert all((tmp_path / name).stat().st_size > 0 for name in names)
    assert manifest.select(pl.col("answer").is_in(pl.col("choices")).all()).item()
    assert pl.read_parquet(tmp_path / "manifest.parquet").equals(manifest)


def test_demo_clips_last_three_to_six_seconds(tmp_path):
    manifest = make_demo(tmp_path, seed=2, clips=8)

    for uri in manifest["video_uri"].unique():
        frames = decode(uri)
        assert 3 <= len(frames) / FPS <= 6
        times_s = [frame.time for frame in frames]
        assert all(later - earlier == pytest.approx(1 / FPS, abs=2e-3) for earlier, later in pairwise(times_s))


def test_two_demos_with_one_seed_are_byte_identical_so_the_second_finds_its_frames_cached(tmp_path):
    first = make_demo(tmp_path / "a", seed=3, clips=8, uri_prefix="s3://x")
    second = make_demo(tmp_path / "b", seed=3, clips=8, uri_prefix="s3://x")

    assert first.equals(second)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
