"""`reelabel frames --compare keyframes,uniform,native`: what each sampler shows of one video, and what it costs."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from infra.embedded import export
from reelabel.sources.object_store import ObjectStore
from tests.clips import make_clip
from tests.command_line import reelabel

__all__ = ["make_clip"]


@pytest.fixture
def frames(services):
    def run(*arguments):
        return reelabel(os.environ | export(services), "frames", *map(str, arguments))

    return run


def test_each_sampler_is_described_with_what_it_decodes(frames, make_clip):
    clip = make_clip(frames=96, gop=24)

    completed = frames(clip, "--compare", "keyframes,uniform:5,native,fps,fps=1", "--num-frames", "8", "--json")

    keyframes, uniform, native, paced = json.loads(completed.stdout)["samplers"]
    assert [each["name"] for each in (keyframes, uniform, native, paced)] == [
        "keyframes:8",
        "uniform:5",
        "native: uniform:8",
        "fps,fps=1.0",
    ]
    assert [pick["frame_index"] for pick in keyframes["picks"]] == [0, 0, 24, 24, 48, 48, 72, 72]
    assert [pick["frame_index"] for pick in uniform["picks"]] == [0, 23, 47, 71, 95]
    assert (len(native["picks"]), len(paced["picks"])) == (8, 8)
    assert keyframes["frames_decoded"] == 4 < uniform["frames_decoded"] == 96


def test_the_sheet_has_a_row_for_each_sampler(frames, make_clip, tmp_path):
    heights = []
    for samplers in ("keyframes", "keyframes,uniform:-1"):
        completed = frames(make_clip(frames=96, gop=24), "--sheet", tmp_path / "sheet.png", "--compare", samplers)
        heights.append(Image.open(tmp_path / "sheet.png").height)

    assert heights[0] < heights[1]
    assert "64 of 96 pictures drawn" in " ".join(completed.stdout.split())


def test_bytes_read_of_a_remote_video_are_shown(frames, make_clip, store_settings):
    clip = make_clip(size=(640, 480), frames=60, gop=15, qp="1", preset="ultrafast")
    uri = f"{store_settings.uri}/side-by-side.mp4"
    ObjectStore(store_settings).replace(uri, clip.read_bytes())

    shown = json.loads(frames(uri, "--compare", "keyframes:2,uniform:-1", "--json").stdout)

    few, most = (each["bytes_fetched"] for each in shown["samplers"])
    assert 0 < few < most / 4
    assert shown["size_bytes"] == clip.stat().st_size > 2 * 1024**2
    assert "bytes_fetched" not in frames(clip, "--compare", "keyframes", "--json").stdout


def test_a_sampler_that_fails_says_so_in_its_row_and_others_are_drawn(frames, make_clip, tmp_path):
    clip = make_clip(frames=1)

    completed = frames(clip, "--sheet", tmp_path / "all.png", "--compare", "keyframes,qwen2_vl,uniform")
    frames(clip, "--sheet", tmp_path / "good.png", "--compare", "keyframes,uniform")

    assert completed.returncode == 0
    assert completed.stdout.count("1 distinct") == 2
    assert "qwen2_vl needs at least 2 frames" in completed.stdout
    assert Image.open(tmp_path / "all.png").height > Image.open(tmp_path / "good.png").height


def test_a_video_that_no_sampler_can_use_is_one_sentence(frames, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video")

    completed = frames(tmp_path / "broken.mp4", "--compare", "keyframes,uniform")

    assert (completed.returncode, completed.stdout) == (1, "")
    assert completed.stderr.startswith("video_unreadable: ")


def test_invisible_characters_of_a_name_reach_neither_sheet_nor_terminal(frames, make_clip, tmp_path):
    clip = make_clip("a\x1b[31m\u202e.mp4")

    completed = frames(clip, "--sheet", tmp_path / "sheet.png", "--compare", "keyframes")

    assert "\x1b[31m" not in completed.stdout + completed.stderr
    assert np.asarray(Image.open(tmp_path / "sheet.png")).min() < 128


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--compare", "keyframes,vllm"], "Unknown sampler vllm"),
        (["--compare", ""], "--compare takes samplers such as"),
        (["--compare", "openvc"], "Unknown sampler openvc"),
        (["--compare", "keyframes,fps=4"], "the sampler keyframes takes no fps"),
        (["--compare", ",".join(f"uniform:{count}" for count in range(1, 12))], "at most 10 samplers, not 11"),
        (["--compare", "keyframes", "--sampler", "uniform"], "leave out --all, --npz and --sampler"),
        (["--compare", "keyframes", "--sheet", "/nowhere/x.png"], "folder /nowhere does not exist"),
        (["--compare", "keyframes", "--sheet", "/proc/x.png"], "/proc/x.png: "),
        (["--compare", "keyframes", "--sheet", "x.psd"], "x.psd is not an image file"),
    ],
)
def test_what_cannot_be_compared_or_written_is_refused_in_one_sentence(frames, make_clip, options, message):
    completed = frames(make_clip(), *options)

    assert completed.returncode == 2
    assert message in " ".join(completed.stderr.split())
