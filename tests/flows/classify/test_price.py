"""What a run cost, and a run that ends at its budget; both export their rows."""

import json
import re

import pytest
from sqlalchemy import select

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import RUN
from tests.command_line import reelabel

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("classify")]

PRICED = {"REELABEL_COST_PER_CPU_HOUR": "3600"}  # a second costs 1
FEW_AT_ONCE = {"REELABEL_MODEL_MAX_CONCURRENT_SHARDS": "1", "REELABEL_EXTRACT_LOOKAHEAD_SHARDS": "1"}


@pytest.fixture
def runs_of(engine):
    def read(dataset):
        with engine.connect() as connection:
            query = select(RUN).where(RUN.c.dataset == dataset).order_by(RUN.c.started_at)
            return list(connection.execute(query).mappings())

    return read


def test_a_run_ends_at_its_budget_and_the_next_one_continues_it(by_server, manifest, runs_of, own_services):
    lake = f"{own_services.store.uri}/lake"
    exporting = {"REELABEL_RESULTS_EXPORT_URI": lake}
    command = ("classify", manifest, "--dataset", "budget")
    completed = reelabel(by_server | PRICED | exporting | FEW_AT_ONCE | {"REELABEL_RUN_MAX_COST": "0.001"}, *command)
    continued = reelabel(by_server | PRICED | exporting, *command)
    forecast = reelabel(by_server | PRICED, *command, "--force", "--dry-run")

    assert "Reconciled" in continued.stdout, completed.stderr + continued.stderr
    assert completed.returncode == 1, completed.stderr
    first, second = runs_of("budget")
    sentence = r"The run has cost [\d.]+, and run.max_cost is 0.001: it ended after \d+ jobs. Start it again"
    assert re.search(sentence, completed.stderr)
    assert 0 < first["jobs_labelled"] < 144
    assert (first["state"], second["state"]) == ("failed", "done")
    assert first["jobs_labelled"] + second["jobs_labelled"] == 144
    assert "Reconciled: 151 jobs = 144 labels + 7 failures." in continued.stdout
    assert f"{second['cost']:,.2f}: 0 GPU-hours" in continued.stdout
    assert f"at a cost of about {first['cost'] + second['cost']:,.2f}" in " ".join(forecast.stdout.split())
    objects = ObjectStore(own_services.store)
    listed = [json.loads(objects.read(f"{lake}/runs/{run['run_id']}.json")) for run in (first, second)]
    assert sum(file["rows"] for run in listed for file in run["files"]) == 151


def test_a_run_without_prices_states_no_cost(first_run, run_id, runs_of):
    assert "GPU-hours" not in first_run.stdout
    assert {run["cost"] for run in runs_of("first") if run["run_id"] == run_id} == {None}


def test_a_budget_needs_a_price(by_server, manifest):
    refused = reelabel(by_server | {"REELABEL_RUN_MAX_COST": "5"}, "classify", manifest, "--dry-run")

    assert refused.returncode == 2
    assert "run.max_cost needs a price: set cost.per_gpu_hour, cost.per_cpu_hour or both." in " ".join(
        refused.stderr.split()
    )


def test_a_survey_says_what_extraction_costs(by_server, manifest):
    shown = reelabel(by_server | PRICED, "manifest", "survey", manifest).stdout

    assert "extraction costs" in shown
