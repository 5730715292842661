"""Manifests in folders."""

import polars as pl
import pytest

from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore


@pytest.fixture
def local_objects():
    """A store of files alone."""
    return ObjectStore(StoreSettings())


def manifest_rows(rows):
    """Return the rows of a manifest with three jobs on each video."""
    numbers = range(rows)
    return pl.DataFrame(
        {
            "job_id": [f"j{number}" for number in numbers],
            "video_uri": [f"v{number // 3}/clip.mp4" for number in numbers],
            "prompt": ["?"] * rows,
            "choices": [["yes", "no"]] * rows,
        }
    )
