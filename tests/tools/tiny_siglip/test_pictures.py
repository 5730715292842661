"""Captions are true of the pictures that they are said to be true of."""

import numpy as np
import pytest

from tasks.demo.captions import SHAPE_BANK
from tools.tiny_siglip.pictures import ALL_CAPTIONS, ATTRIBUTES, CONCEPTS, Concept, draw_pictures

RED_SQUARE, BLUE_CIRCLE = Concept("red", "square"), Concept("blue", "circle")


@pytest.mark.parametrize(
    ("concept", "is_true"),
    [
        (RED_SQUARE, True),
        (Concept("red", "circle"), False),
        (Concept(colour="blue"), True),
        (Concept(colour="green"), False),
        (Concept(shape="circle"), True),
        (Concept(), False),
    ],
)
def test_a_caption_holds_if_one_shape_has_all_that_it_names(concept, is_true):
    assert concept.is_true_of(frozenset({RED_SQUARE, BLUE_CIRCLE})) is is_true


def test_nothing_is_seen_in_an_empty_picture_alone():
    assert [concept for concept in CONCEPTS if concept.is_true_of(frozenset())] == [Concept()]


def test_captions_are_distinct_and_name_every_tag_of_the_demo():
    assert len(set(ALL_CAPTIONS)) == len(ALL_CAPTIONS)
    assert set(SHAPE_BANK) <= set(ALL_CAPTIONS)


def test_a_batch_has_a_true_caption_for_every_picture_and_shows_every_attribute():
    pictures = draw_pictures(np.random.default_rng(0), 200)

    assert pictures.images.shape == (200, 56, 56, 3)
    assert pictures.is_true.any(axis=1).all()
    assert len(set(pictures.captions)) == pictures.is_true.shape[1]
    assert 0.02 < pictures.is_true.mean() < 0.4
    assert dict(zip(ATTRIBUTES, pictures.shows.any(axis=0), strict=True)) == dict.fromkeys(ATTRIBUTES, True)
    assert not pictures.shows.any(axis=1).all()  # some are empty


def test_an_empty_picture_is_grey_and_a_coloured_one_is_not():
    pictures = draw_pictures(np.random.default_rng(1), 200)
    spread = np.ptp(pictures.images.astype(int), axis=-1).reshape(200, -1).max(axis=1)
    is_coloured = pictures.shows[:, : ATTRIBUTES.index("white")].any(axis=1)

    assert spread[is_coloured].min() > 60 > spread[~pictures.shows.any(axis=1)].max()
