"""What needs a browser: `make system-packages` installs it."""

import os
import re
import subprocess
import sys

import pytest
from playwright.sync_api import sync_playwright

_CHROMIUM = "/usr/bin/chromium"
# Nothing outside the machine is asked, and root may run it.
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
_OPTIONS += ["--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def reelabel(tmp_path_factory):
    """Run a command on services of our own, which `demo --keep` leaves running."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("REELABEL_", "PREFECT_"))}
    environment = clean | {"REELABEL_HOME": str(tmp_path_factory.mktemp("full") / "home"), "COLUMNS": "160"}

    def run(*arguments):
        command = [sys.executable, "-m", "flows.cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    yield run
    run("down")


@pytest.fixture(scope="session")
def prefect_url(reelabel):
    """Address of Prefect's pages, after a demo."""
    demo = reelabel("demo", "--keep", "--clips", "24")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    return re.search(r"http://127\.0\.0\.1:\d+", demo.stdout)[0]


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_OPTIONS)
        yield browser
        browser.close()
