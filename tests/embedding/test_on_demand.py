"""Towers that are loaded only if something must be embedded: what they report is kept, by all that it depends on."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from infra.settings import StoreSettings
from reelabel.seal import Seal
from reelabel.sources.object_store import ObjectStore
from tasks.domain import ModelIdentity
from tasks.embedding import on_demand
from tasks.embedding.on_demand import TowersOnDemand, TowersReports
from tests.description.colours import INFO, ColourTowers

MODEL = ModelIdentity(name="siglip", fingerprint="f")
FRAMES = np.full((2, 4, 4, 3), 100, np.uint8)


class CountedTowers(ColourTowers):
    """Reports as an installed package would, and counts how often it is waited for."""

    loads = 0

    def wait_ready(self):
        self.loads += 1
        return replace(INFO, gpus=1, start_ms=7.0, versions=on_demand.towers_versions(None))

    def count_tokens(self, texts):
        return [1] * len(texts)


@pytest.fixture
def towers_of(tmp_path):
    root = f"file://{tmp_path}"
    files = {"objects": ObjectStore(StoreSettings(uri=root)), "root_uri": root, "seal": Seal(b"k" * 32)}

    def make(towers=None, *, charge=None, **facts):
        reports = TowersReports(**files | {"backend": "b", "model": MODEL, "on_gpu": False} | facts)
        return TowersOnDemand(towers or CountedTowers(), reports, **({"charge": charge} if charge else {}))

    return make


def test_towers_of_which_it_is_kept_what_they_report_are_loaded_once_something_is_embedded(towers_of):
    first = towers_of().wait_ready()
    again = towers_of(counted := CountedTowers())

    assert again.wait_ready() == replace(first, gpus=0, start_ms=0.0)
    assert (counted.loads, again.loaded, again.gpus) == (0, None, 0)
    assert again.embed_frames([FRAMES]).shape == (2, 3)
    assert (again.loaded, again.gpus, again.wait_ready()) == (first, 1, first)


@pytest.mark.parametrize("ask", ["embed_texts", "count_tokens"])
def test_towers_are_loaded_for_texts(towers_of, ask):
    towers_of().wait_ready()
    towers = towers_of()

    getattr(towers, ask)(["red"])

    assert towers.loaded


@pytest.mark.parametrize(
    "facts",
    [
        {"backend": "another"},
        {"model": MODEL.model_copy(update={"fingerprint": "g"})},
        {"on_gpu": True},
        {"seal": Seal(b"l" * 32)},
    ],
    ids=lambda facts: next(iter(facts)),
)
def test_what_others_report_is_not_taken(towers_of, facts):
    towers_of().wait_ready()
    towers = towers_of(**facts)

    towers.wait_ready()

    assert towers.loaded


def test_what_was_reported_by_other_packages_is_not_taken(towers_of, monkeypatch):
    towers_of().wait_ready()
    monkeypatch.setattr(on_demand, "towers_versions", lambda _python: {"torch": "another"})
    towers = towers_of()

    towers.wait_ready()

    assert towers.loaded


def test_what_depends_on_packages_that_are_not_known_before_is_not_kept(towers_of, tmp_path):
    towers_of(ColourTowers()).wait_ready()

    assert not (tmp_path / "towers").exists()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff"])
def test_a_report_that_was_altered_is_made_again(towers_of, tmp_path, data):
    towers_of().wait_ready()
    (path,) = (tmp_path / "towers").iterdir()
    path.write_bytes(data)
    towers, counted = towers_of(), towers_of()

    towers.wait_ready()
    counted.wait_ready()

    assert towers.loaded
    assert counted.loaded is None


def test_the_time_in_which_they_are_waited_for_is_charged(towers_of):
    charged = []

    @contextmanager
    def charge():
        charged.append("begins")
        yield

    towers = towers_of(charge=charge)
    towers.wait_ready()
    assert charged == ["begins"]
    towers_of(charge=charge).wait_ready()

    assert charged == ["begins"]  # the report of the first one


def test_towers_that_were_lost_are_waited_for_again(towers_of):
    towers = towers_of(counted := CountedTowers())
    towers.embed_texts(["red"])
    loads = counted.loads

    towers.wait_ready()

    assert counted.loads == loads + 1
