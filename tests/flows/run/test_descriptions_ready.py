"""What a run that describes does before its plan: banks are embedded."""

from types import SimpleNamespace

from flows.run import descriptions
from flows.run.descriptions import embedded_banks
from infra.settings import Settings, StoreSettings
from tasks.domain import DescribeSpec, ModelIdentity, RunPhase, WallClockProfile
from tasks.embedding.bank_file import BankFiles
from tests.description.colours import ColourEncoder

MODEL = ModelIdentity(name="siglip")
CARD = SimpleNamespace(identity=MODEL)


class ClosedEncoder(ColourEncoder):
    texts = 0

    def embed_texts(self, texts):
        self.texts += len(texts)
        return super().embed_texts(texts)

    def close(self):
        """Close nothing."""


def test_a_bank_is_embedded_once_in_the_time_of_loading(tmp_path, monkeypatch):
    settings = Settings(home=tmp_path, store=StoreSettings(uri=f"file://{tmp_path}"))
    digest = BankFiles.of(settings.store).save_texts(["red", "blue"])
    encoder = ClosedEncoder()
    monkeypatch.setattr(descriptions, "open_encoder", lambda *_: encoder)
    spec = DescribeSpec(model=MODEL, tags=digest, captions=digest, scene_threshold=10.0)
    embedded = []
    for _ in range(2):
        profile = WallClockProfile()
        with embedded_banks(settings, CARD, spec, {}, profile):
            embedded.append(encoder.texts)
        assert RunPhase.LOAD in profile.spent_ms

    assert embedded == [2, 2]  # then the vectors are on the store
