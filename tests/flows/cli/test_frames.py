"""`reelabel frames` shows what a run would see, and reads no more of a remote video than a run would."""

import json
import os

import pytest

from infra.embedded import export
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from tests.clips import make_clip
from tests.command_line import reelabel

__all__ = ["make_clip"]


@pytest.fixture
def frames(services):
    """Run the command; gives its JSON."""

    def run(*arguments):
        completed = reelabel(os.environ | export(services), "frames", "--json", *arguments)
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    return run


def test_a_samplers_picks_are_shown(frames, make_clip):
    clip = make_clip(frames=96, gop=24, b_frames=2)
    sampling = Sampling(sampler="fps", fps=1.5, size_multiple_px=1)

    shown = frames(str(clip), "--sampler", "fps", "--fps", "1.5")

    expected = extract_local(clip, sampling=sampling, limits=Limits())
    assert [pick["pts"] for pick in shown["picks"]] == expected.pts.tolist()
    assert len(shown["picks"]) == 12
    assert (shown["longest_gap_s"], shown["coverage"], shown["sampler"]) == (2.0, [], "fps")
    assert shown["unique_frames"] < shown["frames_decoded"] <= 96


def test_frames_of_a_segment_are_shown_and_judged_by_themselves(frames, make_clip):
    clip = make_clip(frames=96, fps=12, gop=48)

    part = frames(str(clip), "--sampler", "fps", "--start-s", "3", "--end-s", "5")

    assert [pick["time_s"] for pick in part["picks"]] == [3.0, 3.5, 4.0, 4.5, 5.0]
    assert (part["coverage"], part["keyframes_in_file"]) == (["one_keyframe"], 2)


def test_every_keyframe_is_shown_if_all_are_asked_for(frames, make_clip):
    shown = frames(str(make_clip(frames=60, gop=3)), "--all")

    assert [pick["frame_index"] for pick in shown["picks"]] == [*range(0, 60, 3)]
    assert (shown["sampler"], shown["frames_decoded"]) == ("keyframes", 20)


def test_similar_frames_are_dropped_and_counted(frames, make_clip):
    clip = make_clip(frames=24, fps=12)

    shown = frames(str(clip), "--sampler", "num_frames", "--num-frames", "24", "--drop-similar", "0.5")

    assert shown["dropped_as_similar"] == 24 - shown["unique_frames"] > 0


def test_little_of_a_remote_video_is_read(frames, make_clip, store_settings):
    clip = make_clip(size=(320, 240), frames=480, gop=48, b_frames=2, qp="1", preset="ultrafast")
    uri = f"{store_settings.uri}/clip.mp4"
    ObjectStore(store_settings).replace(uri, clip.read_bytes())

    part, whole = frames(uri, "--num-frames", "2"), frames(uri, "--num-frames", "2", "--as-stored")

    assert part["picks"] == whole["picks"]
    assert part["bytes_fetched"] < whole["bytes_fetched"] / 4
    assert whole["bytes_fetched"] == part["size_bytes"] == clip.stat().st_size > 2 * 1024**2
