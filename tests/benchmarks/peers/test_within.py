"""The documented scripts that use PrepareVideo within other libraries, with the real ones."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers.environment import peer_python
from tests.clips import write_clip

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("within")]

ROOT = Path(__file__).parents[3]
EXAMPLES = re.findall(
    r"^### (.+?)\n\n```python\n(.*?)```", (ROOT / "docs/peers.md").read_text(), re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return peer_python("within", tmp_path_factory.mktemp("environments"))


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in EXAMPLES])
def test_the_documented_script_prepares_videos_and_tells_of_a_missing_one(python, tmp_path, code):
    write_clip(tmp_path / "a.mp4")
    script = tmp_path / "own.py"
    script.write_text(code)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}

    done = subprocess.run(
        [python, "-P", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    lines = sorted(line for line in done.stdout.splitlines() if ".mp4" in line)
    assert re.fullmatch(r"a\.mp4 [1-8]", lines[0])
    assert lines[1].startswith("gone.mp4 There is no video")
    assert len(lines) == 2
