"""Take the pictures of docs/ui.md from the services that `reelabel demo --keep` leaves running."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Page

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_CHROMIUM = "/usr/bin/chromium"
_SETTLED_MS = 4_000


def main() -> None:
    """Log in to the Prefect UI, and write one picture for each part of docs/ui.md."""
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("url", help="address of the Prefect UI, as `reelabel up` prints it")
    parser.add_argument("login", type=Path, help="file with its login, prefect-login.secret in the home folder")
    arguments = parser.parse_args()
    url, login = arguments.url.rstrip("/"), arguments.login.read_text().strip()
    user, _, password = login.partition(":")
    with httpx.Client(base_url=f"{url}/api", auth=(user, password)) as api, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(url)
        page.get_by_placeholder("admin:pass").fill(login)
        page.get_by_role("button", name="Login").click()
        page.wait_for_timeout(_SETTLED_MS)
        _take_all(page, url, api)
        browser.close()


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
    page.screenshot(path=_DOCS / name)
    print(f"Wrote docs/{name}.")  # noqa: T201


if __name__ == "__main__":
    main()
