"""`reelabel calibrate`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from flows.commands.opened import open_database
from flows.commands.terminal import OUT, print_line
from infra.database import Login
from infra.embedded import ServiceName
from infra.objects import ObjectStore
from infra.uri import absolute_uri
from infra.wording import pluralize
from tasks.calibration.fit import BINS, calibrate
from tasks.manifest.read import read_jobs
from tasks.results.calibrations import known_answers, save_calibration
from tasks.results.runs import find_run, last_run_of

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

    from tasks.calibration.fit import Calibration


def calibrate_spec(manifest: str, *, run: str | None, as_json: bool) -> None:
    """Fit the temperature of a run's spec on a manifest's known answers, save it and print it.

    Raises:
        ConfigurationError: No such run.
        ManifestError: The manifest cannot be read, or too few labelled jobs have a known answer.
    """
    uri = absolute_uri(manifest)
    with open_database(ServiceName.POSTGRES, ServiceName.S3, login=Login.WRITER) as (settings, engine):
        row = find_run(engine, run) if run else last_run_of(engine, uri)
        key = {"dataset": row["dataset"], "spec_id": row["spec_id"]}
        jobs = read_jobs(uri, ObjectStore(settings.store, settings.web))
        calibration = calibrate(known_answers(engine, **key, jobs=jobs))
        save_calibration(engine, calibration, **key, manifest_uri=uri)
    if as_json:
        print(json.dumps(key | asdict(calibration) | {"bins": BINS}, indent=2))  # noqa: T201 - for programs
        return
    _print(row, calibration)


def _print(run: RowMapping, calibration: Calibration) -> None:
    title = f"{run['dataset']}, spec {run['spec_id']}: {pluralize(calibration.jobs, 'known answer')}"
    table = Table("", "raw", "calibrated (held out)", title=Text(title))
    for name, before, after in (
        ("accuracy", calibration.accuracy, calibration.accuracy),
        ("mean confidence", calibration.confidence_before, calibration.confidence_after),
        (f"expected calibration error, {BINS} bins", calibration.ece_before, calibration.ece_after),
        ("negative log-likelihood", calibration.nll_before, calibration.nll_after),
    ):
        table.add_row(name, f"{before:.4f}", f"{after:.4f}")
    OUT.print(table)
    first, second = calibration.half_temperatures
    print_line(
        f"Temperature {calibration.temperature:.3f}; fitted on each half of the jobs: {first:.3f} and {second:.3f}."
    )
    if calibration.ece_after >= calibration.ece_before:
        print_line("Calibration does not improve held-out answers: use the raw probabilities.")
    else:
        print_line(f"See calibrated labels: reelabel results {str(run['run_id'])[:8]} --calibrated")
