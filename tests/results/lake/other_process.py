"""What other processes export: a module of its own, so that they import no more than that needs."""

import os
import signal

import deltalake  # noqa: F401 - imported before processes are forked
import pyiceberg.catalog.sql
import sqlalchemy
from pyiceberg.utils.config import Config

from tasks.results import read as rows
from tasks.results.lake import export

MOMENTS = ["amid its rows", "before it is marked"]


def run_in(variables, function, *arguments):
    """Run a function in an environment, which PyIceberg has read when it was imported."""
    os.environ.update(variables)
    pyiceberg.catalog._ENV_CONFIG = Config()
    function(*arguments)


def export_all(url, store, settings, dataset):
    export.export_ended_runs(sqlalchemy.create_engine(url), store, settings, dataset=dataset)


def export_and_die(url, store, settings, moment):
    """Export, and be killed as soon as all rows but the last are read, or before the run is marked."""
    read, rows._ROWS_PER_PART = export.read_outcomes_of_run, 1

    def read_some(*arguments, **options):
        *some, _ = read(*arguments, **options)
        yield from some
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == MOMENTS[0]:
        export.read_outcomes_of_run = read_some
    else:
        export.update = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    export_all(url, store, settings, "d")
