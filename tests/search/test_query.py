"""What is searched for becomes a vector, and hostile input a sentence."""

import os
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from reelabel.errors import ConfigurationError
from tasks.description.embeddings import Embeddings
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import EmbeddedTexts
from tasks.search.query import QueryEmbedder, check_text, parse_moment, read_image, vector_at
from tests.description.colours import INFO


class Encoder:
    """Counts what it is asked for."""

    calls = 0

    def info(self):
        return replace(INFO, max_tokens=8, dimensions=32)

    def embed_texts(self, texts):
        self.calls += 1
        return EmbeddedTexts(np.full((len(texts), 32), 0.5, np.float32), tuple(len(text.split()) for text in texts))

    def embed_images(self, videos):
        self.calls += 1
        return np.full((sum(map(len, videos)), 32), float(videos[0].mean()), np.float32)


@pytest.fixture
def encoder():
    return Encoder()


@pytest.fixture
def embedder(world, encoder):
    @contextmanager
    def opened():
        yield encoder

    kept = BankFiles(objects=world.objects, root_uri=world.root, seal=world.seal)
    return QueryEmbedder(model=world.model, cache=kept, open_encoder=opened)


def test_a_text_is_embedded_once_whatever_its_case(embedder, encoder):
    first, second = (embedder.embed_text(text).tolist() for text in ("A red square", " a RED square "))

    assert first == second == [0.5] * 32
    assert encoder.calls == 1


def test_a_kept_vector_that_was_altered_is_regenerated(embedder, encoder, world):
    embedder.embed_text("a red square")
    (path,) = (world.folder / "store" / "banks").glob("*.vectors")
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")

    assert embedder.embed_text("a red square").tolist() == [0.5] * 32
    assert encoder.calls == 2


def test_a_picture_is_embedded_once(embedder, encoder, tmp_path):
    for name, shade in (("a.png", 60), ("b.png", 60), ("c.png", 61)):
        Image.new("RGB", (4, 4), (shade,) * 3).save(tmp_path / name)

    found = [embedder.embed_image(tmp_path / name)[0] for name in ("a.png", "b.png", "c.png")]

    assert found == [60, 60, 61]
    assert encoder.calls == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no text to search for"),
        (" \n ", "no text to search for"),
        ("a\x1b[2Jb", r"the character U\+001B, which cannot be printed"),
        ("a\0b", r"the character U\+0000, which cannot be printed"),
        ("a\u202eb", r"the character U\+202E, which cannot be printed"),
        ("x" * 2001, "2,001 characters"),
    ],
)
def test_hostile_texts_are_refused(text, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        check_text(text)


@pytest.mark.parametrize("text", ["क्\u200dष", "👨\u200d👩\u200d👧"])
def test_joiners_that_a_text_is_spelled_with_are_no_hidden_characters(text):
    assert check_text(text) == text


def test_a_text_that_is_longer_than_the_model_takes_is_refused(embedder):
    with pytest.raises(ConfigurationError, match="9 tokens, but the model takes at most 8"):
        embedder.embed_text("a b c d e f g h i")


@pytest.mark.parametrize("text", ["film", "@3", "film@", "film@x", "film@-1", "film@nan", "film@inf", ""])
def test_what_names_no_moment_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"such as film-7@12\.5"):
        parse_moment(text)


def test_a_moment_may_be_of_a_job_whose_id_has_an_at():
    assert parse_moment("a@b@12.5") == ("a@b", 12.5)


def test_the_vector_of_a_moment_is_that_of_the_nearest_frame(world):
    vectors = np.eye(32)[:4]
    key = world.add("a.mp4", vectors)

    vector, time_ms = vector_at(world.cache, key, 2.4)

    assert (vector.argmax(), time_ms) == (2, 2000)
    assert vector_at(world.cache, key, 2.6)[1] == 3000
    with pytest.raises(ConfigurationError, match="Describe it again"):
        vector_at(world.cache, "v1/00/" + 32 * "0" + ".arrow", 0)


def test_pictures_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    Image.new("RGB", (64, 64)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:60])
    Image.new("1", (9000, 9000)).save(tmp_path / "bomb.png")
    os.mkfifo(tmp_path / "pipe")

    for name, sentence in (
        ("text.png", "is not a picture"),
        ("cut.png", "Cannot read the picture"),
        ("bomb.png", "9,000 x 9,000 pixels"),
        ("none.png", "No such file"),
        (".", "is not a file"),
        ("pipe", "is not a file"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            read_image(tmp_path / name)


@pytest.mark.parametrize("seconds", [12, 1e20, 1e308])
def test_a_moment_after_the_end_is_refused(world, seconds):
    key = world.add("a.mp4", np.eye(32)[:4])

    assert vector_at(world.cache, key, 4.5)[1] == 3000
    with pytest.raises(ConfigurationError, match="no embedded frames after 3 s"):
        vector_at(world.cache, key, seconds)


def test_a_frame_is_near_any_time_that_it_stands_for(world):
    vectors = np.eye(32)[:2].astype(np.float32)
    key = world.write("a.mp4", Embeddings(vectors=vectors, pts_ms=np.array([0, 20_000]), duration_s=40.0))

    assert vector_at(world.cache, key, 39)[1] == 20_000
    with pytest.raises(ConfigurationError, match="no embedded frames after 20 s"):
        vector_at(world.cache, key, 41)


def test_a_moment_before_a_segment_is_refused(world):
    vectors = np.eye(32, dtype=np.float32)[:4]
    key = world.write("a.mp4", Embeddings(vectors=vectors, pts_ms=np.arange(4) * 1000 + 60_000, duration_s=4.0))

    assert vector_at(world.cache, key, 56)[1] == 60_000
    with pytest.raises(ConfigurationError, match="has no embedded frames before 60 s"):
        vector_at(world.cache, key, 3)


def test_pictures_of_16_bits_keep_their_shades(tmp_path):
    ramp = np.linspace(0, 65535, 256).reshape(16, 16)
    for name, kind in (("a.png", np.uint16), ("b.tiff", np.int32)):
        Image.fromarray(ramp.astype(kind)).save(tmp_path / name)
        assert read_image(tmp_path / name)[..., 1].reshape(-1).tolist() == list(range(256))
    Image.fromarray(ramp.astype(np.float32)).save(tmp_path / "c.tiff")
    with pytest.raises(ConfigurationError, match=r"c\.tiff does not have 8 or 16 bits"):
        read_image(tmp_path / "c.tiff")


@pytest.mark.parametrize("name", ["a.png", "a.gif", "a.webp"])
def test_what_is_transparent_is_white(tmp_path, name):
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[4:12, 4:12, 3] = 255
    Image.fromarray(pixels).save(tmp_path / name, lossless=True)

    shown = read_image(tmp_path / name)

    assert (shown[0, 0].tolist(), shown[8, 8].tolist()) == ([255] * 3, [0] * 3)


def test_pictures_are_read_upright(tmp_path):
    image = Image.new("RGB", (6, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)

    assert read_image(tmp_path / "a.jpg").shape == (6, 4, 3)
