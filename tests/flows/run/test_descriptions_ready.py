"""What a run that describes does before its plan and after it: banks are embedded, and the search index is kept up."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from flows.run import search_index
from flows.run.purposes import descriptions
from flows.run.purposes.descriptions import Descriptions
from infra.settings import Settings, StoreSettings
from reelabel.seal import NO_KEY
from tasks.description.pooling import EmbeddedBank
from tasks.domain import DescribeSpec, ModelIdentity, RunPhase, WallClockProfile
from tasks.embedding import opened
from tasks.embedding.bank_file import BankFiles
from tasks.search.index_store import IndexStore
from tests.description.colours import ColourTowers
from tests.search.conftest import World

MODEL = ModelIdentity(name="siglip")
CARD = SimpleNamespace(identity=MODEL)


@pytest.mark.parametrize(
    ("embedded", "is_indexed"),
    [
        pytest.param([], True, id="nothing to do"),
        pytest.param([3], True, id="new videos"),
        pytest.param([0, 2], True, id="new videos in a second plan"),
        pytest.param([0], False, id="another bank"),
    ],
)
def test_a_run_that_embeds_nothing_leaves_the_index_as_it_is(tmp_path, monkeypatch, embedded, is_indexed):
    settings = Settings(home=tmp_path, store=StoreSettings(uri=f"file://{tmp_path}"))
    files = BankFiles.of(settings.store)
    digest = files.keep_texts(["a", "b"])
    files.keep_vectors(EmbeddedBank(texts=("a", "b"), vectors=np.eye(2, dtype=np.float32)), MODEL)
    indexed, progress = [], SimpleNamespace(videos_extracted=0)
    monkeypatch.setattr(opened, "open_towers", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(descriptions, "describe_locally", lambda *_, **__: None)
    monkeypatch.setattr(descriptions, "index_embeddings", lambda *given: indexed.append(given[2]))
    spec = DescribeSpec(model=MODEL, tags=digest, captions=digest, scene_threshold=10.0)

    with Descriptions().ready(settings, card=CARD, spec=spec, database=None, ledger=WallClockProfile()) as execute:
        for videos in embedded:
            progress.videos_extracted += videos
            execute(None, progress, None, done_before=())

    assert indexed == ([MODEL] if is_indexed else [])


class ClosedTowers(ColourTowers):
    """Knows the length of a text."""

    def count_tokens(self, texts):
        return [1] * len(texts)

    def close(self):
        """Close nothing."""


def test_the_start_of_the_towers_for_a_new_bank_is_charged(tmp_path, monkeypatch):
    settings = Settings(home=tmp_path, store=StoreSettings(uri=f"file://{tmp_path}"))
    digest = BankFiles.of(settings.store).keep_texts(["red", "blue"])
    monkeypatch.setattr(opened, "open_towers", lambda *_: ClosedTowers())
    monkeypatch.setattr(descriptions, "index_embeddings", lambda *_: None)
    spec = DescribeSpec(model=MODEL, tags=digest, captions=digest, scene_threshold=10.0)
    charged = []
    for _ in range(2):
        ledger = WallClockProfile()
        with Descriptions().ready(settings, card=CARD, spec=spec, database=None, ledger=ledger):
            charged.append(RunPhase.LOAD in ledger.spent_ms)

    assert charged == [True, False]  # the second time, its vectors are on the store


def test_an_index_that_another_run_was_faster_to_update_is_updated_again(tmp_path, monkeypatch, caplog):
    """As of two machines that have shared a plan, and so end at once."""
    world = World(tmp_path, seal=NO_KEY)
    world.add_random(2)
    catalogue = SimpleNamespace(spaces=lambda: {world.space: 2}, keys=lambda _: world.table()["key"])
    read_newest, others = IndexStore.read_newest, [world.update]

    def overtaken(store):
        found = read_newest(store)
        if others:
            others.pop()("elsewhere")
        return found

    monkeypatch.setattr(IndexStore, "read_newest", overtaken)
    monkeypatch.setattr(search_index, "get_run_logger", lambda: logging.getLogger("run"))
    with caplog.at_level(logging.INFO, "run"):
        search_index.index_embeddings(Settings(home=tmp_path, store=world.settings), catalogue, world.model)

    assert caplog.messages == [f"The search index has 40 frames of {world.space}."]
