"""What a team sees of a run in Prefect's own pages."""

import time

import httpx
import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1500})
    page.set_default_timeout(30_000)
    yield page
    page.close()


def test_the_form_starts_a_run_that_shows_its_results(page, prefect_url, reelabel):
    api = httpx.Client(base_url=f"{prefect_url}/api")
    deployment = api.get("/deployments/name/classify/on-demand").json()["id"]
    before = {run["id"] for run in api.post("/flow_runs/filter", json={}).json()}
    page.goto(f"{prefect_url}/deployments/deployment/{deployment}/run")

    for help_text in (
        "Parquet file of jobs, or a glob of such",
        "Name under which job ids are unique",
        "Frames shown to the model per video, 1 to 512",
        "Model folder or hub name",
        "Ask again even where a valid label stands",
    ):
        expect(page.get_by_text(help_text)).to_be_visible()
    page.locator("textarea").first.fill("s3://frames/cache/demo/manifest.parquet")
    _submit(page, lambda: {run["id"] for run in api.post("/flow_runs/filter", json={}).json()} - before)
    [started] = {run["id"] for run in api.post("/flow_runs/filter", json={}).json()} - before
    page.goto(f"{prefect_url}/runs/flow-run/{started}")
    deadline = time.monotonic() + 180
    while api.get(f"/flow_runs/{started}").json()["state_type"] != "COMPLETED" and time.monotonic() < deadline:
        page.wait_for_timeout(500)
    page.reload()
    expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
    page.get_by_text("Artifacts", exact=True).first.click()
    expect(page.get_by_text("reelabel-results")).to_be_visible()
    expect(page.get_by_text("Reconciled: 72 jobs = 72 labels + 0 failures.")).to_be_visible()
    assert "Reconciled: 72 jobs" in reelabel("audit", "last").stdout


def _submit(page, started):
    """Press the button until a run has started: the page passes over a click while it still checks the form."""
    for _ in range(6):
        page.wait_for_timeout(2000)
        if started():
            return
        page.get_by_role("button", name="Submit").click()
        page.wait_for_timeout(5000)
    assert started()
