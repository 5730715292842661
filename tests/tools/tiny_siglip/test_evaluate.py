"""The shipped weights tag and find clips of unseen seeds, and only guess on black ones."""

import pytest

from reelabel_engine.protocol import EncoderConfig
from tasks.embedding.encoder import EncoderProcess
from tasks.model.identity import TINY_ENCODER
from tools.tiny_siglip.evaluate import MOST_ON_BLACK, TARGET, accuracies

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("encoder")]
CLIPS = 200


def test_tags_and_finds_are_right_on_clips_of_unseen_seeds_and_tags_at_chance_on_black_ones(tmp_path):
    config = EncoderConfig(model=str(TINY_ENCODER))
    with EncoderProcess(config, log_path=tmp_path / "encoder.log", start_timeout_s=600) as encoder:
        found = accuracies(encoder, tmp_path, clips=CLIPS)

    assert found["clips"] >= TARGET
    assert found["search"] >= TARGET
    assert found["black"] <= MOST_ON_BLACK
