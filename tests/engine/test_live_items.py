"""What a live session shows its model is checked, and named by exactly what it is."""

import numpy as np
import pytest

from reelabel_engine.live_items import AudioSpan, FramePair

IMAGES = np.arange(2 * 2 * 3 * 3, dtype=np.uint8).reshape(2, 2, 3, 3)
SAMPLES = np.arange(8_000, dtype=np.int16)


@pytest.mark.parametrize(
    "images",
    [IMAGES.astype(np.float32), IMAGES[0], IMAGES[:1], IMAGES[..., :2], np.zeros((3, 2, 3, 3), np.uint8)],
    ids=["of floats", "one", "one of one", "without blue", "three"],
)
def test_a_pair_is_two_pictures(images):
    with pytest.raises(ValueError, match=r"images must be \(2, H, W, 3\) of uint8, got"):
        FramePair(images=images, times_s=(0.0, 1.0))


@pytest.mark.parametrize("times_s", [(-0.1, 1.0), (1.0, 0.9), (float("nan"), 1.0)])
def test_times_of_a_pair_neither_decrease_nor_are_negative(times_s):
    with pytest.raises(ValueError, match="times must neither decrease nor be negative"):
        FramePair(images=IMAGES, times_s=times_s)


def test_a_frame_that_is_alone_is_one_of_a_pair():
    whole, alone = (FramePair(images=IMAGES, times_s=(0.0, 0.0), frames=frames) for frames in (2, 1))

    assert [(image.tolist(), time_s) for image, time_s in whole.distinct] == [(each.tolist(), 0.0) for each in IMAGES]
    assert [image.tolist() for image, _ in alone.distinct] == [IMAGES[0].tolist()]


def test_a_pair_is_named_by_its_pixels_its_shape_and_its_times():
    pairs = [
        FramePair(images=images, times_s=times_s)
        for images in (IMAGES, IMAGES + 1, IMAGES.reshape(2, 3, 2, 3), IMAGES[:, ::-1])
        for times_s in ((0.0, 1.0), (0.0, 2.0))
    ]

    assert len({each.hash for each in pairs}) == 8
    assert FramePair(images=IMAGES.copy(), times_s=(0.0, 1.0)).hash == pairs[0].hash


@pytest.mark.parametrize(
    "samples", [SAMPLES.astype(np.float32), SAMPLES[None], SAMPLES[:0]], ids=["of floats", "of two sides", "none"]
)
def test_a_span_is_samples(samples):
    with pytest.raises(ValueError, match=r"samples must be \(N,\) of int16, got"):
        AudioSpan(samples=samples, time_s=0.0)


@pytest.mark.parametrize("time_s", [-0.1, float("nan")])
def test_a_span_is_not_before_its_session(time_s):
    with pytest.raises(ValueError, match="the time must not be negative"):
        AudioSpan(samples=SAMPLES, time_s=time_s)


def test_a_span_lasts_as_long_as_its_samples_and_is_named_by_them_and_its_time():
    span = AudioSpan(samples=SAMPLES, time_s=2.0)

    assert (span.seconds, span.times_s) == (0.5, (2.0, 2.5))
    others = [AudioSpan(samples=SAMPLES[::-1], time_s=2.0), AudioSpan(samples=SAMPLES, time_s=3.0)]
    assert len({each.hash for each in (span, *others)}) == 3
    assert AudioSpan(samples=SAMPLES.copy(), time_s=2.0).hash == span.hash
