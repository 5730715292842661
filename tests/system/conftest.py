"""Fixtures for a browser and Prometheus, which `make system-packages` installs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import sync_playwright

from tests.shadow import write_shadow

_HERE = Path(__file__).parent
_CHROMIUM = "/usr/bin/chromium"
# Nothing outside the machine is asked, and root may run it.
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
_OPTIONS += ["--disable-background-networking", "--disable-component-update"]


def pytest_collection_modifyitems(items):
    """Put everything in this folder into the system tier, and what needs the demo's services into one worker."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.system)
            if "reelabel" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group("kept-demo"))


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("system") / "home"


@pytest.fixture(scope="session")
def reelabel(home, tmp_path_factory):
    """Run a command on services of our own, which `demo --keep` leaves running.

    It runs in a folder with packages that have the names of ours: neither the command nor the processes
    and flow runs that it starts may import those.
    """
    folder = write_shadow(tmp_path_factory.mktemp("users"))
    program = Path(sys.executable).with_name("reelabel")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("REELABEL_", "PREFECT_"))}
    environment = clean | {"REELABEL_HOME": str(home), "COLUMNS": "160", "PREFECT_HOME": os.environ["PREFECT_HOME"]}

    def run(*arguments, **variables):
        try:
            return subprocess.run(
                [program, *arguments],
                cwd=folder,
                env=environment | variables,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            output = [text.decode(errors="replace") for text in (late.stdout, late.stderr) if text]
            raise AssertionError(
                "\n".join([f"`reelabel {' '.join(arguments)}` did not end. It said:", *output])
            ) from None

    yield run
    run("down")


@pytest.fixture(scope="session")
def prefect_url(reelabel):
    """Address of Prefect's pages, after a demo."""
    demo = reelabel("demo", "--keep", "--clips", "24")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    return re.search(r"http://127\.0\.0\.1:\d+", demo.stdout)[0]


@pytest.fixture(scope="session")
def login(home, prefect_url):  # noqa: ARG001 - made as the services start
    """What the pages ask for."""
    return (home / "prefect-login.secret").read_text()


@pytest.fixture(scope="session")
def api(prefect_url, login):
    with httpx.Client(base_url=f"{prefect_url}/api", auth=tuple(login.split(":"))) as client:
        yield client


@pytest.fixture(scope="module")
def browser():
    """A browser for one module: while it is open, an event loop runs in this thread, and others cannot."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Return a function that opens a file as a page; whatever the page logs, or asks for elsewhere, fails the test."""
    pages, faults = [], []

    def open_page(path, *, allowed=None, width=1280, theme="light", fragment=""):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        urls = ("data:", allowed or path.as_uri())
        page.on("request", lambda request: request.url.startswith(urls) or faults.append(request.url))
        page.goto(path.as_uri() + fragment)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert faults == []
