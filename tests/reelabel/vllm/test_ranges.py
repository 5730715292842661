"""A video at a URL, of which the loader reads no more than its frames need."""

import hashlib
import json

import numpy as np
import pytest

from reelabel.errors import ConfigurationError
from reelabel.extract import extract_local
from reelabel.integrations.vllm.decode import NETWORKS_VARIABLE, decode_url, parse_sampling
from reelabel.options import Limits
from tests.clips import make_clip
from tests.engine_python import run_by_engine
from tests.reelabel.sources.web_server import serving

__all__ = ["make_clip"]

OPTIONS = {"sampler": "fps", "fps": 2}
ASK = {"timeout_s": 10.0, "max_bytes": None}
PADDING_BYTES = 3 * 1024**2  # small files are downloaded
ASK_VLLM = """
import hashlib, json, sys
from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY
from reelabel.integrations.vllm.plugin import register

register()
media = {"video": {"video_backend": "pyav_keyframes", **json.loads(sys.argv[2])}}
video, metadata = MEDIA_CONNECTOR_REGISTRY.load("reelabel", media_io_kwargs=media).fetch_video(sys.argv[1])
print(json.dumps([hashlib.sha256(video.tobytes()).hexdigest(), metadata["frames_indices"]]))
"""


@pytest.fixture
def path(make_clip):
    path = make_clip(frames=96, gop=12, b_frames=2)
    padding = (PADDING_BYTES).to_bytes(4) + b"free" + bytes(PADDING_BYTES - 8)
    path.write_bytes(path.read_bytes() + padding)
    return path


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv(NETWORKS_VARIABLE, "127.0.0.0/8")
    with serving() as server:
        yield server


@pytest.fixture
def expected(path):
    return extract_local(path, sampling=parse_sampling(OPTIONS), limits=Limits())


def test_frames_between_keyframes_are_read_by_ranges(server, path, expected):
    url = server.add("/clip.mp4", body=path.read_bytes())

    got = decode_url(url, OPTIONS, **ASK)

    np.testing.assert_array_equal(got.frames.unique, expected.unique)
    assert 0 < got.frames.cost.bytes_fetched < PADDING_BYTES / 4
    assert got.fingerprint


@pytest.mark.parametrize(
    ("page", "limits"),
    [
        pytest.param({"etags": ()}, {}, id="no version"),
        pytest.param({}, {"max_bytes": 1000}, id="too large"),
        pytest.param({}, {"hosts": ("example.org",)}, id="another host"),
        pytest.param({"statuses": (404, 404)}, {}, id="missing"),
    ],
)
def test_whatever_stands_in_the_way_is_left_to_vllm(server, path, page, limits):
    url = server.add("/clip.mp4", body=path.read_bytes(), **page)

    assert decode_url(url, OPTIONS, **ASK | limits) is None


def test_a_private_address_is_read_by_ranges_only_where_it_is_allowed(server, path, monkeypatch):
    monkeypatch.delenv(NETWORKS_VARIABLE)
    url = server.add("/clip.mp4", body=path.read_bytes())

    assert decode_url(url, OPTIONS, **ASK) is None


def test_networks_that_are_none_are_named(monkeypatch):
    monkeypatch.setenv(NETWORKS_VARIABLE, "home")

    with pytest.raises(ConfigurationError, match="REELABEL_LOADER_NETWORKS is 'home'"):
        decode_url("http://127.0.0.1/clip.mp4", OPTIONS, **ASK)


@pytest.mark.system
def test_vllms_connector_gives_the_loaders_frames_at_the_bytes_of_ranges(server, path, expected):
    url = server.add("/clip.mp4", body=path.read_bytes())

    completed = run_by_engine("-P", "-c", ASK_VLLM, url, json.dumps(OPTIONS), capture_output=True, text=True)

    digest, indices = json.loads(completed.stdout.splitlines()[-1])
    assert digest == hashlib.sha256(expected.images.tobytes()).hexdigest()
    assert indices == expected.index.tolist()
    assert all(each.startswith("bytes=") for each in server.pages["/clip.mp4"].requests if each)
