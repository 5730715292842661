"""Samplers of a user's own program in decoding processes."""

import os
import subprocess
import sys
from pathlib import Path

_MAIN_WITH_A_SAMPLER = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import register
from reelabel.sampling.spec import SamplerSpec


def last(sampling, facts):
    return np.array([facts.total_frames - 1])


register(SamplerSpec(name="last", summary="the last frame", choose=last))

if __name__ == "__main__":
    with DecodePool(processes=1, timeout_s=60, memory_mib=4096) as pool:
        got = pool.extract(Path(sys.argv[1]), sampling=Sampling(sampler="last"), limits=Limits())
        print(got.index.tolist())
"""


def test_a_sampler_of_the_main_module_works_in_children(make_clip, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(_MAIN_WITH_A_SAMPLER)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}

    completed = subprocess.run(
        [sys.executable, script, make_clip(frames=48)], env=environment, capture_output=True, text=True, check=False
    )

    assert (completed.stdout, completed.stderr) == ("[47]\n", "")


def test_a_sampler_of_an_interactive_session_works_in_children(make_clip):
    code = _MAIN_WITH_A_SAMPLER.replace("choose=last", "choose=lambda sampling, facts: last(sampling, facts)")
    command = [sys.executable, "-c", code, make_clip(frames=48)]

    completed = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)

    assert (completed.stdout, completed.stderr) == ("[47]\n", "")
