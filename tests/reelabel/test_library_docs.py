"""The pages that use the library: each of their lines of Python runs, where PyTorch is installed."""

import re
from pathlib import Path

import pytest

from tests.engine_python import run_by_engine
from tests.reelabel.sources.web_server import serving

ROOT = Path(__file__).parents[2]
RUN = """
import re, sys

if __name__ == "__main__":
    page, url = sys.argv[1:]
    names = {"url": url}
    for block in re.findall(r"^```python\\n(.*?)^```", open(page).read(), flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), names)
    if "prepare" in names:
        names["prepare"].close()
"""


@pytest.mark.parametrize("page", ["README.md", "docs/library.md", "reelabel/README.md"])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, make_clip, tmp_path):
    data = make_clip().read_bytes()
    (tmp_path / "run.py").write_text(RUN)

    with serving() as server:
        url = server.add("/clip.mp4", body=data)
        completed = run_by_engine("run.py", ROOT / page, url, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert re.search(r"^```python\n", (ROOT / page).read_text(), flags=re.MULTILINE)
    assert completed.returncode == 0, completed.stderr
