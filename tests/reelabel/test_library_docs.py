"""The pages that use the library: each of their lines of Python runs."""

import re
from pathlib import Path

import pytest

from tests.reelabel.sources.web_server import serving

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/library.md", "reelabel/README.md"])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, make_clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = make_clip().read_bytes()
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)

    with serving() as server:
        names = {"url": server.add("/clip.mp4", body=data)}
        for block in blocks:
            exec(compile(block, page, "exec"), names)

    assert blocks
    if "prepare" in names:
        names["prepare"].close()
