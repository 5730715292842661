"""The library alone, in an environment with its dependencies and nothing else, from a folder with names like ours."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL
from tests.clips import make_clip
from tests.engine_python import engine_python
from tests.shadow import NAMES, write_shadow

__all__ = ["make_clip"]

ROOT = Path(__file__).parents[2]

_USE = """
import json, sys
import reelabel

if __name__ == "__main__":
    clip = sys.argv[1]
    frames = reelabel.extract_frames(clip, num_frames=4, max_pixels=602_112, size_multiple_px=28)
    with reelabel.PrepareVideo(sampling={"num_frames": 4}, output_format="numpy") as prepare:
        videos = prepare({"video_uri": [clip, "s3://bucket/clip.mp4", "https://example.com/clip.mp4"]})
    try:
        reelabel.PrepareVideo(sampling={"num_frames": 4})
    except reelabel.ReelabelError as error:
        pictures = str(error)
    print(json.dumps({
        "shape": frames.images.shape,
        "prepared": videos["video"][0][0].shape,
        "errors": [*(meta["error"] for [meta] in videos["video_meta"]), pictures],
        "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    }))
"""
_LOAD = """
import json, sys
from reelabel.integrations.vllm.plugin import KeyframeLoader, register

register()
frames, metadata = KeyframeLoader.load_bytes(open(sys.argv[1], "rb").read(), num_frames=4)
print(json.dumps({"shape": frames.shape, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def run(python, folder, script, clip, environment=None):
    (folder / "script.py").write_text(script)
    completed = subprocess.run(
        [python, "script.py", str(clip)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def library_python(tmp_path_factory):
    """A Python with the library's wheel and what its lock names."""
    folder = tmp_path_factory.mktemp("library")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    lock = ROOT / "requirements" / "library.txt"
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT / "reelabel"]
    subprocess.run(wheel, check=True, timeout=300)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", lock], check=True, timeout=600)
    subprocess.run([*pip, *folder.glob("*.whl")], check=True, timeout=300)
    return python


def test_the_wheel_contains_the_library_and_nothing_else(library_python):
    site = next((library_python.parents[1] / "lib").glob("*/site-packages"))

    assert (site / "reelabel" / "py.typed").exists()
    assert not [name for name in (*NAMES, "benchmarks", "tools", "tests") if (site / name).exists()]


def test_the_library_works_beside_packages_named_like_ours(library_python, tmp_path, make_clip):
    got = run(library_python, write_shadow(tmp_path / "users"), _USE, make_clip())

    assert got["shape"][3] == 3
    assert got["prepared"] == [4, *got["shape"][1:]]
    assert not {*got["modules"]} & {*NAMES, "prefect", "boto3", "urllib3", "sqlalchemy", "pyarrow", "PIL"}


def test_a_missing_dependency_is_named_with_its_extra(library_python, tmp_path, make_clip):
    found, s3, web, pictures = run(library_python, write_shadow(tmp_path / "users"), _USE, make_clip())["errors"]

    assert found == ""
    assert "-m pip install 'boto3>=1.40'`" in s3
    assert "-m pip install 'urllib3<3,>=2.8'`" in web
    assert "-m pip install 'pillow>=12'`" in pictures


def test_the_vllm_plugin_works_beside_packages_named_like_ours(tmp_path, make_clip):
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))

    got = run(engine_python(), write_shadow(tmp_path / "users"), _LOAD, make_clip(), environment)

    assert got["shape"][0] == 4
    assert not {*got["modules"]} & {*NAMES}
