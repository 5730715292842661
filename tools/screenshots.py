"""Takes the screenshots of docs/operations.md, docs/live.md and docs/results.md: `python -m tools.screenshots PART`.

The page of a run is about clips with few and with many keyframes, some of which are missing:

    python -m benchmarks trade --clips 160 && cd .reelabel/bench/trade/seed-40000
    rm trade-00[0-4]3.mp4
    reelabel classify manifest.parquet --num-frames 8
    reelabel report last --out run.html --job ID    # of a clip with one keyframe
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import httpx
from playwright.sync_api import sync_playwright

from tasks.demo.clips import make_demo
from tasks.demo.shapes import QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_CHROMIUM = "/usr/bin/chromium"
_OPTIONS = ("--no-sandbox", "--disable-gpu")
_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
_SETTLED_MS = 4_000
_ANSWER_MS = 120_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parts = parser.add_subparsers(required=True)
    ui = parts.add_parser("ui", help="the Prefect UI that `reelabel demo --keep` leaves running")
    ui.add_argument("url", help="its address, as `reelabel up` prints it")
    ui.add_argument("login", type=Path, help="file with its login, prefect-login.secret in the home folder")
    ui.set_defaults(take=lambda given: _take_ui(given.url.rstrip("/"), given.login.read_text().strip()))
    live = parts.add_parser("live", help="the page /live of `reelabel serve`, with a demo clip as its camera")
    live.add_argument("url", help="address of the server")
    live.set_defaults(take=lambda given: _take_live(given.url.rstrip("/")))
    report = parts.add_parser("report", help="a page that `reelabel report` has written")
    report.add_argument("page", type=Path, help="its file")
    report.add_argument("job", help="id of a job to show")
    report.set_defaults(take=lambda given: _take_report(given.page.absolute().as_uri(), given.job))
    arguments = parser.parse_args()
    arguments.take(arguments)


@contextlib.contextmanager
def _browser(*options: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=[*_OPTIONS, *options])
        yield browser
        browser.close()


def _take_ui(url: str, login: str) -> None:
    user, _, password = login.partition(":")
    with httpx.Client(base_url=f"{url}/api", auth=(user, password)) as api, _browser() as browser:
        page = browser.new_page()
        page.goto(url)
        page.get_by_placeholder("admin:pass").fill(login)
        page.get_by_role("button", name="Login").click()
        page.wait_for_timeout(_SETTLED_MS)
        _take_all(page, url, api)


def _take_live(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        make_demo(Path(folder), seed=5, clips=1, uri_prefix=folder)
        camera = Path(folder, "camera.mjpeg")
        _write_camera(next(Path(folder).glob("clip-*")), camera)
        with _browser(*_CAMERA, f"--use-file-for-fake-video-capture={camera.name}") as browser:
            _show_live(browser.new_page(viewport={"width": 1280, "height": 1340}), url)


def _show_live(page: Page, url: str) -> None:
    page.goto(f"{url}/live")
    page.get_by_role("button", name="Start").click()
    page.wait_for_timeout(2 * _SETTLED_MS)
    for question, choices in QUESTIONS.values():
        page.fill("#question", question)
        page.fill("#choices", " | ".join(choices))
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator("#answers > li").first.locator(".note", has_text="First token").wait_for(timeout=_ANSWER_MS)
        page.locator("#every").select_option("change")  # of the later ones
        page.wait_for_timeout(_SETTLED_MS)
    _write(page, "live.png")


def _take_report(url: str, job: str) -> None:
    with _browser() as browser:
        page = browser.new_page(viewport={"width": 1180, "height": 960}, color_scheme="light")
        page.goto(url)
        _write(page, "report-overview.png")
        page.fill("#query", job)
        page.locator("#search").get_by_role("button").click()
        page.wait_for_timeout(_SETTLED_MS)
        _write(page, "report-job.png")
        page.locator(".card[open]").get_by_role("button", name="Replay its picks").click()
        page.wait_for_timeout(_SETTLED_MS)
        _write(page, "report-replay.png")


def _write_camera(clip: Path, camera: Path) -> None:
    """Write a clip as an MJPEG file that Chromium uses as a camera, in a loop."""
    with av.open(str(clip)) as source, av.open(str(camera), "w", format="mjpeg") as target:
        stream = target.add_stream("mjpeg", rate=30)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuvj420p"
        for number, frame in enumerate(source.decode(video=0)):
            shown = frame.reformat(width=320, height=240, format="yuvj420p")
            shown.pts, shown.time_base = number, Fraction(1, 30)
            target.mux(stream.encode(shown))
        target.mux(stream.encode(None))


def _take_all(page: Page, url: str, api: httpx.Client) -> None:
    for flow, deployment in (("classify", "on-demand"), ("describe", "on-demand"), ("backfill", "by-ids")):
        found = api.get(f"/deployments/name/{flow}/{deployment}").json()
        _take(page, f"{url}/deployments/deployment/{found['id']}/run", f"ui-{flow}.png", height=900)
    ended = {"sort": "END_TIME_DESC", "flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
    run = _filtered(api, "flow_runs", ended)[0]
    _take(page, f"{url}/runs/flow-run/{run['id']}", "ui-run.png", height=1000)
    _take(page, f"{url}/runs/flow-run/{run['id']}", "ui-artifacts.png", height=1000, tab="Artifacts")
    of_run = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}}
    table = next(each for each in _filtered(api, "artifacts", of_run) if each["key"] == "reelabel-results")
    _take(page, f"{url}/artifacts/artifact/{table['id']}", "ui-results.png", height=660)


def _filtered(api: httpx.Client, kind: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = api.post(f"/{kind}/filter", json=body).json()
    return rows


def _take(page: Page, url: str, name: str, *, height: int, tab: str | None = None) -> None:
    page.set_viewport_size({"width": 1280, "height": height})
    page.goto(url)
    page.wait_for_timeout(_SETTLED_MS)
    if tab:
        page.get_by_text(tab, exact=True).last.click()
        page.wait_for_timeout(_SETTLED_MS)
    _write(page, name)


def _write(page: Page, name: str) -> None:
    page.screenshot(path=_DOCS / name)
    print(f"Wrote docs/{name}.")  # noqa: T201


if __name__ == "__main__":
    main()
