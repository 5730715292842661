"""The shipped weights tag and find clips of unseen seeds, and only guess on black ones."""

import pytest

from reelabel_engine.protocol import TowersConfig
from tasks.embedding.identity import TINY_TOWERS
from tasks.embedding.process import TowersProcess
from tools.tiny_siglip.evaluate import MOST_ON_BLACK, TARGET, accuracies

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("towers")]
CLIPS = 200


def test_tags_and_finds_are_right_on_clips_of_unseen_seeds_and_tags_at_chance_on_black_ones(tmp_path):
    config = TowersConfig(model=str(TINY_TOWERS))
    with TowersProcess(config, log_path=tmp_path / "towers.log", start_timeout_s=600) as towers:
        found = accuracies(towers, tmp_path, clips=CLIPS)

    assert found["clips"] >= TARGET
    assert found["search"] >= TARGET
    assert found["black"] <= MOST_ON_BLACK
