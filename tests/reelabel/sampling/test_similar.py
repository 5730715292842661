import av
import numpy as np
import pytest

from reelabel.sampling.similar import drop_similar

SECONDS, FPS, WIDTH, HEIGHT = 24, 5, 320, 180


@pytest.fixture
def film(tmp_path):
    """Film a room with a noisy camera, and decode a frame a second; shape (24, 180, 320, 3)."""

    def record(draw):
        rng = np.random.default_rng(1)
        room = np.kron(rng.integers(40, 200, (9, 16, 3)), np.ones((20, 20, 1)))
        path = tmp_path / "room.mp4"
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=FPS, options={"crf": "28"})
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for number in range(SECONDS * FPS):
                scene = draw(room.copy(), number / FPS)
                noisy = (scene + rng.normal(0, 6, scene.shape)).clip(0, 255).astype(np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(noisy, format="rgb24")))
            container.mux(stream.encode(None))
        with av.open(str(path)) as container:
            return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])[::FPS]

    return record


def empty_room(scene, _time_s):
    return scene


def walker_now_and_then(scene, time_s):
    """Somebody crosses the room from second 6 to 10."""
    if 6 <= time_s < 10:
        left = int((time_s - 6) / 4 * (WIDTH - 24))
        scene[100:160, left : left + 24] = (230, 30, 30)
    return scene


def lamp_by_turns(scene, time_s):
    """A small lamp in the corner goes on or off every three seconds."""
    if time_s // 3 % 2:
        scene[:24, -24:] = 255
    return scene


def pan(scene, time_s):
    return np.roll(scene, int(time_s * 25), axis=1)


def test_a_static_scene_is_one_frame_in_spite_of_noise(film):
    assert drop_similar(film(empty_room)).tolist() == [0]


@pytest.mark.parametrize("draw", [walker_now_and_then, lamp_by_turns])
def test_a_mostly_static_scene_is_two_to_five_times_fewer_frames(film, draw):
    images = film(draw)

    kept = drop_similar(images)

    assert 2 <= len(images) / len(kept) <= 5


def test_every_frame_of_a_moving_person_is_kept(film):
    kept = drop_similar(film(walker_now_and_then)).tolist()

    assert kept == [0, 6, 7, 8, 9, 10]


def test_a_moving_camera_loses_no_frame(film):
    assert drop_similar(film(pan)).tolist() == list(range(SECONDS))


def test_frames_are_compared_with_the_last_one_kept_so_slow_changes_count():
    fade = np.arange(100, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 8, 8, 3), np.uint8)

    assert drop_similar(fade, threshold=1 - 10 / 255).tolist() == list(range(0, 100, 10))


def test_a_change_of_colour_alone_counts():
    red, green = np.zeros((2, 40, 40, 3), np.uint8)
    red[..., 0], green[..., 1] = 98, 50  # as bright as each other

    assert drop_similar(np.stack([red, green])).tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(1, 1), (5, 700), (33, 17)])
def test_frames_of_any_size_are_compared(shape):
    black, white = np.zeros((*shape, 3), np.uint8), np.full((*shape, 3), 255, np.uint8)

    assert drop_similar(np.stack([black, black, white])).tolist() == [0, 2]


def test_an_empty_list_of_frames_stays_empty():
    assert drop_similar(np.empty((0, 8, 8, 3), np.uint8)).tolist() == []
