"""What a run that describes does before its plan: banks are embedded."""

from types import SimpleNamespace

from flows.run.descriptions import embedded_banks
from infra.settings import Settings, StoreSettings
from tasks.domain import DescribeSpec, ModelIdentity, RunPhase, WallClockProfile
from tasks.embedding import opened
from tasks.embedding.bank_file import BankFiles
from tests.description.colours import ColourTowers

MODEL = ModelIdentity(name="siglip")
CARD = SimpleNamespace(identity=MODEL)


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
    spec = DescribeSpec(model=MODEL, tags=digest, captions=digest, scene_threshold=10.0)
    charged = []
    for _ in range(2):
        profile = WallClockProfile()
        with embedded_banks(settings, CARD, spec, {}, profile):
            charged.append(RunPhase.LOAD in profile.spent_ms)

    assert charged == [True, False]  # the second time, its vectors are on the store
