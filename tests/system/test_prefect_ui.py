"""What a team sees of a run in Prefect's UI."""

import time

import pytest
from playwright.sync_api import expect

from tasks.model.identity import TINY_MODEL

_ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
MANIFEST = "s3://frames/cache/demo/manifest.parquet"


@pytest.fixture
def page(browser, prefect_url, login):
    """Prefect's pages, after a login."""
    page = browser.new_page(viewport={"width": 1280, "height": 1500})
    page.set_default_timeout(30_000)
    page.goto(prefect_url)
    page.get_by_placeholder("admin:pass").fill(login)
    page.get_by_role("button", name="Login").click()
    expect(page.get_by_placeholder("admin:pass")).not_to_be_visible()
    yield page
    page.close()


def test_the_form_starts_a_run_and_the_run_shows_its_results(page, prefect_url, api, reelabel):
    _open_form(page, prefect_url, api, "classify/on-demand")
    for help_text in (
        "Parquet file of jobs, or a glob",
        "Name within which job ids are unique",
        "Model folder or Hugging Face name",
        "Frames per video, or -1 for every frame",
        "Orders in which a question's choices are shown",
        "Also run jobs that have a valid label",
    ):
        expect(page.get_by_text(help_text)).to_be_visible()
    page.locator("textarea").first.fill(MANIFEST)
    _name_model(page)

    _see_it_end(page, prefect_url, api, sentence="Reconciled: 72 jobs = 72 labels + 0 failures.")

    assert "Reconciled: 72 jobs" in reelabel("audit", "last").stdout


def test_the_backfill_form_asks_the_named_jobs_again(page, prefect_url, api, reelabel):
    _open_form(page, prefect_url, api, "backfill/by-ids")
    for help_text in (
        "Text file with more ids, one per line",
        "Failed jobs.",
        "Only jobs of this",
    ):
        expect(page.get_by_text(help_text)).to_be_visible()
    page.locator("textarea").first.fill(MANIFEST)
    for number, job_id in enumerate(("clip-0000-colour", "clip-0001-shape"), start=1):
        _field(page, "Ids of jobs to answer.").get_by_role("button", name="Add item").click()
        page.locator("textarea").nth(number).fill(job_id)
    _field(page, "Also run jobs that have a valid label or description.").locator(".p-toggle__control").click()
    _name_model(page)

    run_id = _see_it_end(page, prefect_url, api, sentence="Reconciled: 2 jobs = 2 labels + 0 failures.")

    assert api.get(f"/flow_runs/{run_id}").json()["parameters"]["ids"] == ["clip-0000-colour", "clip-0001-shape"]
    page.goto(f"{prefect_url}/artifacts/artifact/{_artifact(api, run_id, 'reelabel-how-to-read')}")
    expect(page.get_by_text(f"reelabel results {run_id}")).to_be_visible()
    expect(page.get_by_text(f"reelabel report {run_id}")).to_be_visible()
    labels = reelabel("results", run_id, "--format", "csv").stdout
    assert len(labels.splitlines()) == 1 + 72  # those of the dataset, each once


def _open_form(page, prefect_url, api, deployment):
    deployment_id = api.get(f"/deployments/name/{deployment}").json()["id"]
    page.goto(f"{prefect_url}/deployments/deployment/{deployment_id}/run")


def _field(page, help_text):
    return page.locator(".schema-form-property").filter(has=page.get_by_text(help_text, exact=True))


def _name_model(page):
    """Name the demo's model, a folder: neither the settings nor the earlier run's spec have its path."""
    help_text = "Model folder or Hugging Face name; by default model.name, or in a backfill the earlier run's."
    model = _field(page, help_text).last  # the innermost: the groups around it hold the text as well
    model.get_by_text("str", exact=True).click()
    model.locator("textarea").fill(str(TINY_MODEL))


def _see_it_end(page, prefect_url, api, *, sentence):
    """Submit the form, watch its run until it ends, and look at its results; gives its id."""
    before = _flow_runs(api)
    _submit(page, lambda: _flow_runs(api) - before)
    [started] = _flow_runs(api) - before
    page.goto(f"{prefect_url}/runs/flow-run/{started}")
    deadline = time.monotonic() + 400
    while (run := api.get(f"/flow_runs/{started}").json())["state_type"] not in _ENDED and time.monotonic() < deadline:
        page.wait_for_timeout(500)
    assert run["state_type"] == "COMPLETED", run["state"]
    page.reload()
    expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
    page.get_by_text("Artifacts", exact=True).first.click()
    expect(page.get_by_text("reelabel-results")).to_be_visible()
    expect(page.get_by_text(sentence)).to_be_visible()
    return started


def _flow_runs(api):
    return {run["id"] for run in api.post("/flow_runs/filter", json={}).json()}


def _artifact(api, run_id, key):
    of_run = {"artifacts": {"flow_run_id": {"any_": [run_id]}}}
    return next(each["id"] for each in api.post("/artifacts/filter", json=of_run).json() if each["key"] == key)


def _submit(page, started):
    """Press the button until a run has started: the page passes over a click while it still checks the form."""
    for _ in range(6):
        page.wait_for_timeout(2000)
        if started():
            return
        page.get_by_role("button", name="Submit").click()
        page.wait_for_timeout(5000)
    assert started()
