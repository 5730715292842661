"""Clips of moving shapes show what their questions ask about."""

import dataclasses

import numpy as np
import pytest

from tasks.demo.actors import SHAPES, SIDE_PX
from tasks.demo.shapes import COLOURS, DIRECTIONS, draw_shape, render_frames

INSTANTS = np.linspace(0, 1, 9)


def shape_with(**changes):
    return dataclasses.replace(draw_shape(np.random.default_rng(7)), background=0, **changes)


def centres(frames):
    lit = (frames.max(axis=-1) > 100).astype(float)
    axis = np.arange(SIDE_PX)
    mass = lit.sum(axis=(1, 2))
    return (lit.sum(axis=1) @ axis) / mass, (lit.sum(axis=2) @ axis) / mass


def test_frames_are_square_rgb_bytes():
    frames = render_frames(shape_with(), INSTANTS, np.random.default_rng(0))

    assert frames.shape == (9, SIDE_PX, SIDE_PX, 3)
    assert frames.dtype == np.uint8


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_shape_moves_steadily_in_the_stated_direction(direction):
    shape = shape_with(direction=direction, shape="square", rgb=(250, 250, 250), across_px=28.0)

    x, y = centres(render_frames(shape, INSTANTS, np.random.default_rng(0)))

    step_x, step_y = DIRECTIONS[direction]
    assert np.diff(x) * step_x + np.diff(y) * step_y == pytest.approx(shape.travel_px / 8, abs=0.8)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_drawn_shape_has_the_colour_it_is_named_after(colour):
    shapes = [draw_shape(np.random.default_rng(seed)) for seed in range(40)]

    drawn = [shape.rgb for shape in shapes if shape.colour == colour]

    assert drawn
    assert np.abs(np.array(drawn) - COLOURS[colour]).max() <= 25


def test_no_two_shapes_cover_the_same_area():
    frames = [
        render_frames(shape_with(shape=name, rgb=(250, 250, 250)), INSTANTS[:1], np.random.default_rng(0))
        for name in SHAPES
    ]

    areas = [int((frame.max(axis=-1) > 100).sum()) for frame in frames]

    assert len(set(areas)) == len(SHAPES)


def test_the_same_seed_draws_the_same_clip():
    first, second = (
        render_frames(draw_shape(rng), INSTANTS, rng) for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )

    assert np.array_equal(first, second)
