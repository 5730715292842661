import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import reelabel

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def written():
    """Return the pages as a new process makes them, in which no test has registered anything."""
    code = "import json; from tools.reference import pages; print(json.dumps(pages()))"
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=DOCS.parent, capture_output=True, text=True, check=True
    )
    return json.loads(completed.stdout)


@pytest.mark.parametrize("page", ["cli.md", "results.md", "samplers.md", "settings.md", "live-protocol.json"])
def test_a_written_page_is_up_to_date(written, page):
    assert (DOCS / page).read_text() == written[page], "run: python -m tools.reference"


def test_config_prints_the_page_of_the_settings():
    completed = reelabel(os.environ, "config", "--format", "markdown")

    assert completed.stdout == (DOCS / "settings.md").read_text()


def test_config_refuses_another_format():
    completed = reelabel(os.environ, "config", "--format", "yaml")

    assert completed.returncode == 2
    assert "Unknown --format yaml; use toml or markdown." in completed.stderr
