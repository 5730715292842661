"""Frames of files, streams and webcams, as `reelabel live` sends them."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from flows.cli.live.source import AudioInput, Source, SourceAudio
from reelabel.errors import ConfigurationError
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from reelabel_engine.live_items import AUDIO_HZ
from tests.clips import crop_in_container, write_clip
from tests.flows.cli.live.sources import FPS, served, write_video
from tests.reelabel.test_hdr import encode as encode_hdr


def times_of(path, *, fps):
    with Source(str(path), fps=fps) as source:
        return [round(part.time_s, 3) for part in source.parts()]


def test_a_file_is_sent_at_the_frame_rate_asked_for(tmp_path):
    path = write_video(tmp_path / "clip.mp4", seconds=0.6)

    assert times_of(path, fps=100) == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert times_of(path, fps=5) == [0, 0.2, 0.4]
    assert times_of(path, fps=4) == [0, 0.3, 0.5]


def test_after_a_gap_frames_do_not_follow_faster_than_twice_the_rate(tmp_path):
    path = tmp_path / "gap.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for pts in (0, 10, 11, 12, 13):
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
            frame.pts = pts
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))

    assert times_of(path, fps=5) == [0, 0.5, 0.6]


def test_recordings_that_were_joined_are_played_one_after_the_other(tmp_path):
    path = write_video(tmp_path / "joined.ts", seconds=0.8)
    path.write_bytes(2 * path.read_bytes())

    times_s = times_of(path, fps=4 * FPS)

    assert len(times_s) == 16
    assert sorted(times_s) == times_s
    assert times_s[-1] - times_s[0] == pytest.approx(1.6, abs=0.2)


def test_the_audio_of_a_file_comes_after_the_first_frame_and_before_those_that_follow_it(tmp_path):
    path = write_video(tmp_path / "tone.mp4", seconds=0.6, tone_hz=440)

    with Source(str(path), fps=5) as source:
        assert source.has_audio
        silent = [type(part) for part in source.parts()]
    with Source(str(path), fps=5) as source:
        parts = [*source.parts(with_audio=True)]

    chunks = [part for part in parts if isinstance(part, SourceAudio)]
    assert SourceAudio not in silent
    assert not isinstance(parts[0], SourceAudio)
    assert chunks[0].time_s == pytest.approx(0, abs=0.05)
    assert chunks[-1].end_s == pytest.approx(0.6, abs=0.1)
    assert [chunk.end_s for chunk in chunks[:-1]] == pytest.approx([chunk.time_s for chunk in chunks[1:]])
    for at, part in enumerate(parts):
        if not isinstance(part, SourceAudio):
            assert all(chunk.end_s <= part.time_s for chunk in parts[:at] if isinstance(chunk, SourceAudio))


def test_a_source_that_is_stopped_yields_no_more(tmp_path):
    with Source(str(write_video(tmp_path / "clip.mp4", seconds=0.6)), fps=100) as source:
        parts = source.parts()
        next(parts)
        source.stop()
        assert list(parts) == []


def sound(seconds, *, value=1000, rate=AUDIO_HZ, layout="mono"):
    channels = {"mono": 1, "stereo": 2}[layout]
    samples = np.full((1, round(seconds * rate) * channels), value, np.int16)
    frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=layout)
    frame.sample_rate = rate
    return frame


def chunks_of(audio, until_s=float("inf")):
    return [(round(each.time_s, 3), round(each.end_s, 3)) for each in audio.until(until_s)]


def test_audio_is_cut_into_quarters_of_a_second_and_at_gaps():
    audio = AudioInput()
    for tenth in range(6):
        audio.add(sound(0.1), tenth / 10 + 0.01)  # clocks are not exact
    assert chunks_of(audio, 0.5) == [(0, 0.3)]
    assert chunks_of(audio) == [(0.3, 0.6)]
    audio.add(sound(0.1), 0.1)  # earlier than its end: it follows, as the server refuses what overlaps
    audio.add(sound(0.1), None)
    audio.add(sound(0.1), 2.0)
    assert chunks_of(audio) == [(0.6, 0.8)]
    audio.end()
    assert chunks_of(audio) == [(2.0, 2.1)]
    audio.end()
    assert chunks_of(audio) == []


def test_audio_may_change_its_rate_and_its_channels():
    audio = AudioInput()
    audio.add(sound(0.5), 0.0)
    audio.add(sound(0.5, rate=44_100, layout="stereo"), 0.5)
    audio.end()

    chunks = [*audio.until(float("inf"))]
    assert sum(len(chunk.samples) for chunk in chunks) == pytest.approx(AUDIO_HZ, rel=0.01)
    assert chunks[0].samples.tolist() == [1000] * round(0.5 * AUDIO_HZ)


@pytest.mark.parametrize("rotation_deg", [0, 90, 180, 270])
def test_the_frames_of_a_phone_are_sent_upright(tmp_path, rotation_deg):
    path = write_clip(tmp_path / "phone.mp4", frames=2, size=(112, 56), rotation_deg=rotation_deg)
    [upright] = extract_local(path, sampling=Sampling(num_frames=1)).images

    with Source(str(path), fps=FPS) as source:
        sent = np.asarray(Image.open(io.BytesIO(next(source.parts()).jpeg)), np.int16)

    assert sent.shape == upright.shape
    assert np.abs(sent - upright).mean() < 10


def test_the_frames_of_a_file_are_sent_without_what_its_container_crops(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", frames=2, size=(112, 56))
    crop_in_container(path, 56, 28, left=28, top=14, size=(112, 56))
    [shown] = extract_local(path, sampling=Sampling(num_frames=1)).images

    with Source(str(path), fps=FPS) as source:
        sent = np.asarray(Image.open(io.BytesIO(next(source.parts()).jpeg)), np.int16)

    assert sent.shape == shown.shape == (28, 56, 3)
    assert np.abs(sent - shown).mean() < 10


@pytest.mark.parametrize("transfer", ["HLG", "PQ"])
def test_hdr_frames_are_sent_in_the_colours_of_sdr(tmp_path, transfer):
    path = encode_hdr(tmp_path / "clip.mp4", transfer)
    [shown] = extract_local(path, sampling=Sampling(num_frames=1)).images

    with Source(str(path), fps=FPS) as source:
        sent = np.asarray(Image.open(io.BytesIO(next(source.parts()).jpeg)), np.int16)

    assert np.abs(sent - shown).mean() < 3


def test_an_hls_address_is_a_source(tmp_path):
    write_video(tmp_path / "live.m3u8", format="hls", options={"hls_time": "1", "hls_list_size": "0"})

    with served(tmp_path) as url, Source(f"{url}/live.m3u8", fps=10) as source:
        assert not source.is_file
        assert len(list(source.parts())) >= 1


def test_a_playlist_from_elsewhere_cannot_name_files_of_this_machine(tmp_path):
    video = write_video(tmp_path / "brighter.mp4")
    segment = f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile://{video}\n#EXT-X-ENDLIST\n"
    (tmp_path / "evil.m3u8").write_text(segment)

    with served(tmp_path) as url, pytest.raises(ConfigurationError, match=r"cannot be opened|has no video"):
        Source(f"{url}/evil.m3u8", fps=2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.mp4", "missing.mp4 cannot be opened .*No such file or directory.*; check the source"),
        ("ftp://host/x.mp4", "ftp://host/x.mp4 is not a source of frames; use a path, rtsp://"),
        (__file__, "cannot be opened .*; check the source"),
        ("file://missing.mp4", "file://missing.mp4 cannot be opened .*No such file or directory"),
        (
            "/dev/video99",
            "/dev/video99 cannot be opened .*No such file.*; check that it is a webcam, that you may read it",
        ),
        ("/dev/null", "/dev/null cannot be opened .*; check that it is a webcam"),
        ("rtsp://127.0.0.1:1/stream", "cannot be opened .*Connection refused"),
    ],
)
def test_a_source_that_cannot_be_used_is_reported_in_a_sentence(source, message):
    with pytest.raises(ConfigurationError, match=message):
        Source(source, fps=2)


def test_a_source_that_may_not_be_read_is_reported_in_a_sentence(tmp_path):
    folder = tmp_path / "hidden"
    folder.mkdir(mode=0)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65_534)
        with pytest.raises(ConfigurationError, match=r"video\.mp4 cannot be opened \(Permission denied\); check"):
            Source(f"{folder}/video.mp4", fps=2)
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_a_source_without_video_or_that_may_never_open_is_refused(tmp_path):
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=AUDIO_HZ, layout="mono")
        container.mux(stream.encode(sound(0.1)))
    os.mkfifo(tmp_path / "pipe.mp4")

    with pytest.raises(ConfigurationError, match=r"sound\.wav has no video; use another source"):
        Source(str(tmp_path / "sound.wav"), fps=2)
    with pytest.raises(ConfigurationError, match=r"pipe\.mp4 is a pipe, which may never open; use a file"):
        Source(str(tmp_path / "pipe.mp4"), fps=2)


_WATCH = """
from flows.cli.live import source
source._SILENCE_S, source._JOIN_S = 1, 0.1
try:
    with source.Source("/dev/video42", fps=5) as webcam:
        for part in webcam.parts():
            print(f"{part.time_s:.1f}", len(part.jpeg) > 1000, flush=True)
except source.ConfigurationError as error:
    print(error.message)
"""


@pytest.mark.system
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler builds what stands in for a webcam")
def test_a_webcam_is_a_source_and_one_that_stalls_or_is_unplugged_is_reported(tmp_path):
    driver = tmp_path / "webcam.so"
    code = Path(__file__).with_name("webcam.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", driver, code, "-ldl"], check=True)
    watching = [
        subprocess.Popen(
            [sys.executable, "-c", _WATCH],
            env=os.environ | {"LD_PRELOAD": str(driver), variable: frames},
            stdout=subprocess.PIPE,
            text=True,
        )
        for variable, frames in (("WEBCAM_STALLS", "0"), ("WEBCAM_STALLS", "60"), ("WEBCAM_GOES", "60"))
    ]
    silent, stalled, gone = ([*each.communicate()[0].splitlines()] for each in watching)

    check = "; check that it is a webcam, that you may read it, and that no other program uses it."
    assert silent == [f"/dev/video42 has sent nothing for 1 seconds{check}"]
    assert stalled[-1] == silent[0]
    assert gone[-1] == f"/dev/video42 ended with an error (No such device){check}"
    assert 4 <= len(gone) - 1 <= 15  # of 60 at 30 a second, those that 5 a second takes
    assert {line.split()[1] for line in (*stalled[:-1], *gone[:-1])} == {"True"}
