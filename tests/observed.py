"""A manifest whose run populates all metrics, and the queries of the bundled dashboard."""

import json
from pathlib import Path

import polars as pl

from tasks.demo.clips import make_demo

DASHBOARD = Path(__file__).parents[1] / "infra" / "grafana" / "reelabel.json"
MISSING = 5


def write_observed_manifest(folder):
    """Write clips, and a manifest of more than two shards that also includes MISSING jobs without a video."""
    good = make_demo(folder, seed=78, clips=32, uri_prefix=str(folder))
    missing = good.head(MISSING).with_columns(
        job_id=pl.format("gone-{}", pl.int_range(MISSING)), video_uri=pl.lit(str(folder / "gone.mp4"))
    )
    pl.concat([good, missing]).write_parquet(folder / "observed.parquet")
    return folder / "observed.parquet"


def dashboard_queries(*, interval):
    """Return all queries with the title of their panel, with Grafana's variables substituted."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    variables = {"$__rate_interval": interval, "$__range": interval, "$dataset": ".*"}
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    for name, value in variables.items():
        queries = [(title, query.replace(name, value)) for title, query in queries]
    return queries
