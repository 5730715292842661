"""The process of the towers: its protocol and how it ends; `test_towers` has real models in it."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from infra.errors import EngineClosedError, EngineLostError
from reelabel_engine.environment import towers_environment
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import TowersConfig
from tasks.embedding.fleet import TowersFleet
from tasks.embedding.process import TowersProcess
from tests.embedding import stub_towers


@pytest.fixture
def make_towers(tmp_path):
    made = []

    def make(**options):
        defaults = {"log_path": tmp_path / "towers.log", "start_timeout_s": 60, "command": stub_towers.COMMAND}
        towers = TowersProcess(TowersConfig(model=str(tmp_path / "model")), **defaults | options)
        made.append(towers)
        towers.start()
        return towers

    yield make
    for towers in made:
        towers.close()


def frames_of(value, count=1, side=2):
    return np.full((count, side, side, 3), value, np.uint8)


@pytest.mark.system
def test_each_request_gets_its_own_vectors_whatever_the_threads_and_sizes(make_towers):
    towers = make_towers()
    requests = [[frames_of(n, 1 + n % 3), frames_of(n + 1, 2, side=5)] for n in range(40)]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(towers.embed_frames, requests))

    for vectors, request in zip(found, requests, strict=True):
        assert np.array_equal(vectors, stub_towers.mean_colours([frame for video in request for frame in video]))
    assert towers.starts == 1
    assert towers.images_embedded == sum(len(video) for request in requests for video in request)


@pytest.mark.system
def test_towers_that_die_are_told_of_and_started_again(make_towers, tmp_path, caplog):
    (tmp_path / "model").touch()
    towers = make_towers()

    vectors = towers.embed_frames([frames_of(stub_towers.KILL_ONCE)])

    assert vectors.shape == (1, 3)
    assert towers.starts == 2
    assert "its process died" in caplog.text


@pytest.mark.system
def test_frames_that_kill_the_towers_twice_are_given_up_and_others_are_embedded(make_towers):
    towers = make_towers()

    with pytest.raises(EngineLostError, match=r"its process died; see the log .*towers\.log"):
        towers.embed_frames([frames_of(stub_towers.KILL)])

    assert towers.embed_frames([frames_of(1)]).shape == (1, 3)
    assert towers.starts == 3


@pytest.mark.system
def test_towers_killed_between_requests_are_started_again(make_towers):
    towers = make_towers()
    towers.wait_ready()
    os.kill(towers.pid, signal.SIGKILL)

    assert towers.embed_frames([frames_of(1)]).shape == (1, 3)


@pytest.mark.system
def test_a_fault_in_the_towers_is_quoted(make_towers):
    with pytest.raises(EngineLostError, match="MemoryError: no memory for the batch"):
        make_towers().embed_frames([frames_of(stub_towers.FAULT)])


@pytest.mark.system
def test_hanging_towers_are_ended_at_the_deadline(make_towers):
    towers = make_towers(answer_timeout_s=0.3)

    with pytest.raises(EngineLostError, match=r"no answer within 0\.3 s"):
        towers.embed_frames([frames_of(stub_towers.HANG)])

    assert towers.pid is None


@pytest.mark.system
def test_a_model_that_loads_too_slowly_is_given_up(make_towers, tmp_path):
    os.mkfifo(tmp_path / "model")

    with pytest.raises(ModelError, match=r"did not load within 0\.2 s"):
        make_towers(start_timeout_s=0.2).wait_ready()


@pytest.mark.system
def test_a_model_that_cannot_be_loaded_is_named(make_towers, tmp_path):
    (tmp_path / "model").write_text("It has no weights.")

    with pytest.raises(ModelError, match=r"Cannot load model .*/model: It has no weights; see the log"):
        make_towers().wait_ready()


@pytest.mark.system
def test_vectors_that_are_not_finite_are_a_fault_of_the_model(make_towers):
    with pytest.raises(ModelError, match="not finite"):
        make_towers().embed_texts(["a cat"])


@pytest.mark.system
def test_closed_towers_stay_closed(make_towers):
    towers = make_towers()
    towers.close()

    with pytest.raises(EngineClosedError):
        towers.embed_frames([frames_of(1)])


def test_what_is_no_frame_is_refused_before_it_is_sent(tmp_path):
    towers = TowersProcess(TowersConfig(model="any"), log_path=tmp_path / "log", start_timeout_s=1)

    for wrong in (np.zeros((2, 2, 3), np.uint8), np.zeros((1, 2, 2, 3), np.float32), np.zeros((1, 0, 2, 3), np.uint8)):
        with pytest.raises(ValueError, match="frames are uint8"):
            towers.embed_frames([wrong])
    assert towers.starts == 0


@pytest.mark.system
def test_a_fleet_shares_requests_and_goes_on_without_towers_that_cannot_be_loaded(make_towers, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stuck = TowersProcess(
        TowersConfig(model=str(pipe)),
        log_path=tmp_path / "stuck.log",
        start_timeout_s=0.5,
        command=stub_towers.COMMAND,
    )
    well = make_towers()

    with TowersFleet([stuck, well]) as fleet:
        found = [fleet.embed_frames([frames_of(value)]) for value in range(5)]

    assert [vectors.tolist() for vectors in found] == [[[value] * 3] for value in range(5)]
    assert well.images_embedded == 5


@pytest.mark.system
def test_a_fleet_without_usable_towers_says_why(make_towers, tmp_path):
    (tmp_path / "model").write_text("It has no weights.")

    with TowersFleet([make_towers(), make_towers()]) as fleet, pytest.raises(ModelError, match="It has no weights"):
        fleet.embed_frames([frames_of(1)])


def test_towers_take_a_gpu_that_fails_for_one_and_number_gpus_as_the_driver_does():
    environment = towers_environment(TowersConfig(model="m", devices=("1",)))

    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
