"""The model that ships finds the clip that a text describes, among clips of seeds that it has not seen."""

from itertools import cycle, islice

import numpy as np
import pytest

from reelabel_engine.protocol import EncoderConfig
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import ENCODINGS, draw_clip, write_clip
from tasks.description.embeddings import Embeddings
from tasks.embedding.encoder import EncoderProcess
from tasks.model.identity import TINY_ENCODER, read_model_info
from tests.search.conftest import World
from tools.tiny_siglip.evaluate import EVALUATION_SEED, read_clip

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("encoder")]

CLIPS = 96
FRAMES = 16


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """A world of clips with their embeddings, what each shows, and the vectors of all texts."""
    folder = tmp_path_factory.mktemp("clips")
    model_info = read_model_info(str(TINY_ENCODER))
    shown, rng = [], np.random.default_rng(EVALUATION_SEED)
    config = EncoderConfig(model=str(TINY_ENCODER))
    with EncoderProcess(config, log_path=folder / "encoder.log", start_timeout_s=900) as encoder:
        size = encoder.info().dimensions
        world = World(folder, model=model_info.identity, size=size)
        for number, encoding in enumerate(islice(cycle(ENCODINGS), CLIPS)):
            shape, pixels = draw_clip(rng)
            path = folder / f"{number}.{encoding.container}"
            write_clip(path, pixels, encoding)
            frames, pts_ms = read_clip(path)
            picks = np.unique(np.linspace(0, len(frames) - 1, FRAMES).round().astype(int))
            world.write(path.name, Embeddings(vectors=encoder.embed_images([frames[picks]]), pts_ms=pts_ms[picks]))
            shown.append(f"a {shape.colour} {shape.shape}")
        texts = dict(zip(SHAPE_BANK, encoder.embed_texts(SHAPE_BANK).vectors, strict=True))
    return world, shown, texts


def test_the_first_moment_shows_what_the_text_says(described):
    world, shown, texts = described
    queries = {text: vector for text, vector in texts.items() if text in shown}
    assert len(queries) >= 14

    first = {text: shown[world.search(vector, top=1).moments[0].file] for text, vector in queries.items()}

    assert np.mean([text == found for text, found in first.items()]) >= 0.95, first


def test_what_looks_like_a_clip_shows_the_same(described):
    world, shown, _ = described
    rights = []
    for number, (job, truth) in enumerate(zip(world.jobs, shown, strict=True)):
        embeddings, _ = world.cache.read_stored(job["key"])
        moment = (job["key"], int(embeddings.pts_ms[8]))
        found = [each.file for each in world.search(embeddings.vectors[8], top=9, exclude=moment).moments]
        if shown.count(truth) > 1:
            rights.append(shown[next(file for file in found if file != number)] == truth)

    assert np.mean(rights) >= 0.95
