"""The model that ships finds the clip that a text describes, among clips of seeds that it has not seen."""

from itertools import cycle, islice

import numpy as np
import pytest

from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import ENCODINGS, draw_clip, write_clip
from tasks.description.embeddings import Embeddings
from tasks.embedding.backend import TowersOptions, towers_backend
from tasks.embedding.identity import TINY_TOWERS
from tests.search.conftest import World
from tools.tiny_siglip.evaluate import EVALUATION_SEED, read_clip

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("towers")]

CLIPS = 96
FRAMES = 16


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """A world of clips with their embeddings, what each shows, and the vectors of all texts."""
    folder = tmp_path_factory.mktemp("clips")
    backend = towers_backend()
    card = backend.card(str(TINY_TOWERS))
    shown, rng = [], np.random.default_rng(EVALUATION_SEED)
    with backend.open(card, TowersOptions(log_path=folder / "towers.log")) as towers:
        size = towers.wait_ready().dimensions
        world = World(folder, model=card.identity, size=size)
        for number, encoding in enumerate(islice(cycle(ENCODINGS), CLIPS)):
            shape, pixels = draw_clip(rng)
            path = folder / f"{number}.{encoding.container}"
            write_clip(path, pixels, encoding)
            frames, pts_ms = read_clip(path)
            picks = np.unique(np.linspace(0, len(frames) - 1, FRAMES).round().astype(int))
            world.write(path.name, Embeddings(vectors=towers.embed_frames([frames[picks]]), pts_ms=pts_ms[picks]))
            shown.append(f"a {shape.colour} {shape.shape}")
        texts = dict(zip(SHAPE_BANK, towers.embed_texts(SHAPE_BANK), strict=True))
    return world, shown, texts


def test_the_first_moment_shows_what_the_text_says(described):
    world, shown, texts = described
    asked = {text: vector for text, vector in texts.items() if text in shown}
    assert len(asked) >= 14

    first = {text: shown[world.search(vector, top=1).moments[0].file] for text, vector in asked.items()}

    assert np.mean([text == found for text, found in first.items()]) >= 0.95, first


def test_what_looks_like_a_clip_shows_the_same(described):
    world, shown, _ = described
    rights = []
    for number, (job, truth) in enumerate(zip(world.jobs, shown, strict=True)):
        embeddings = world.cache.read_stored(job["key"]).embeddings
        moment = (job["key"], int(embeddings.pts_ms[8]))
        found = [each.file for each in world.search(embeddings.vectors[8], top=9, without=moment).moments]
        if shown.count(truth) > 1:
            rights.append(shown[next(file for file in found if file != number)] == truth)

    assert np.mean(rights) >= 0.95
