"""The documented use of vLLM, from a shell without our settings."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tasks.model.identity import TINY_MODEL
from tests.clips import write_clip
from tests.engine_python import engine_python

DOCUMENT = Path(__file__).parents[3] / "docs" / "integrations.md"
SHELL = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def run(script, folder, **environment):
    command = [engine_python(), str(script)]
    return subprocess.run(command, env=SHELL | environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.system
def test_torchvision_can_be_imported_where_the_installation_puts_it(tmp_path):
    script = tmp_path / "own.py"
    script.write_text("import torchvision\nprint(torchvision.ops.nms.__name__)\n")

    completed = run(script, tmp_path)

    assert (completed.stdout, completed.stderr) == ("nms\n", "")


@pytest.mark.system
@pytest.mark.xdist_group("loaders")
def test_the_documented_script_answers(tmp_path):
    write_clip(tmp_path / "match.mp4")
    section = DOCUMENT.read_text().split("\n## vLLM\n")[1].split("\n## ")[0]
    [example] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    script = tmp_path / "own.py"
    script.write_text(
        f"{example}    print('ANSWER', len(output.outputs[0].token_ids))\n".replace(
            "Qwen/Qwen2.5-VL-7B-Instruct", str(TINY_MODEL)
        ).replace("/videos", str(tmp_path))
    )

    completed = run(script, tmp_path, VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")

    assert completed.returncode == 0, completed.stderr[-4000:]
    assert "ANSWER 1" in completed.stdout
