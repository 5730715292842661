"""The encoder's process: its protocol and how it ends; `test_encoder` has real models in it."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from infra.errors import EngineClosedError, EngineLostError
from infra.settings import Settings
from reelabel_engine.environment import encoder_environment
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EncoderConfig
from tasks.embedding.encoder import EncoderPool, EncoderProcess, open_encoder, read_encoder_info
from tasks.model.identity import TINY_ENCODER
from tests.embedding import stub_encoder


@pytest.fixture
def make_encoder(tmp_path):
    encoders = []

    def make(kind=EncoderProcess, **options):
        defaults = {"log_path": tmp_path / "encoder.log", "start_timeout_s": 60, "command": stub_encoder.COMMAND}
        encoder = kind(EncoderConfig(model=str(tmp_path / "model")), **defaults | options)
        encoders.append(encoder)
        encoder.start()
        return encoder

    yield make
    for encoder in encoders:
        encoder.close()


def frames_of(value, count=1, side=2):
    return np.full((count, side, side, 3), value, np.uint8)


@pytest.mark.system
def test_each_request_gets_its_own_vectors_whatever_the_threads_and_sizes(make_encoder):
    encoder = make_encoder()
    requests = [[frames_of(n, 1 + n % 3), frames_of(n + 1, 2, side=5)] for n in range(40)]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(encoder.embed_images, requests))

    for vectors, request in zip(found, requests, strict=True):
        assert np.array_equal(vectors, stub_encoder.mean_colours([frame for video in request for frame in video]))
    assert encoder.starts == 1
    assert encoder.images_embedded == sum(len(video) for request in requests for video in request)


@pytest.mark.system
def test_an_encoder_that_dies_is_reported_and_started_again(make_encoder, tmp_path, caplog):
    (tmp_path / "model").touch()
    encoder = make_encoder()

    vectors = encoder.embed_images([frames_of(stub_encoder.KILL_ONCE)])

    assert vectors.shape == (1, 3)
    assert encoder.starts == 2
    assert "its process died" in caplog.text


def test_frames_that_kill_the_encoder_twice_are_given_up_and_others_are_embedded(make_encoder):
    encoder = make_encoder()

    with pytest.raises(EngineLostError, match=r"its process died; see the log .*encoder\.log"):
        encoder.embed_images([frames_of(stub_encoder.KILL)])

    assert encoder.embed_images([frames_of(1)]).shape == (1, 3)
    assert encoder.starts == 3


@pytest.mark.system
def test_an_encoder_killed_between_requests_is_started_again(make_encoder):
    encoder = make_encoder()
    encoder.info()
    os.kill(encoder.pid, signal.SIGKILL)

    assert encoder.embed_images([frames_of(1)]).shape == (1, 3)


@pytest.mark.system
def test_a_fault_in_the_encoder_is_quoted(make_encoder):
    with pytest.raises(EngineLostError, match="MemoryError: no memory for the batch"):
        make_encoder().embed_images([frames_of(stub_encoder.FAULT)])


@pytest.mark.system
def test_a_hanging_encoder_is_ended_at_the_deadline(make_encoder):
    encoder = make_encoder(answer_timeout_s=0.3)

    with pytest.raises(EngineLostError, match=r"no answer within 0\.3 s"):
        encoder.embed_images([frames_of(stub_encoder.HANG)])

    assert encoder.pid is None


@pytest.mark.system
def test_a_model_that_loads_too_slowly_is_given_up(make_encoder, tmp_path):
    os.mkfifo(tmp_path / "model")

    with pytest.raises(ModelError, match=r"did not load within 0\.2 s"):
        make_encoder(start_timeout_s=0.2).info()


def test_a_model_that_cannot_be_loaded_is_named(make_encoder, tmp_path):
    (tmp_path / "model").write_text("It has no weights.")

    with pytest.raises(ModelError, match=r"Cannot load model .*/model: It has no weights; see the log"):
        make_encoder().info()


def test_vectors_that_are_not_finite_are_a_fault_of_the_model(make_encoder):
    with pytest.raises(ModelError, match="not finite"):
        make_encoder().embed_texts(["a cat"])


@pytest.mark.system
def test_a_closed_encoder_stays_closed(make_encoder):
    encoder = make_encoder()
    encoder.close()

    with pytest.raises(EngineClosedError):
        encoder.embed_images([frames_of(1)])


class ClosedByItsReply(EncoderProcess):
    """Is closed by another thread as soon as a reply has arrived."""

    def ask(self, build, *, count=1):
        replies = super().ask(build, count=count)
        with ThreadPoolExecutor(1) as other:
            other.submit(self.close).result()
        return replies


@pytest.mark.system
def test_a_reply_that_has_arrived_is_returned_though_the_encoder_is_closed_meanwhile(make_encoder):
    encoder = make_encoder(ClosedByItsReply)

    assert encoder.embed_images([frames_of(1)]).tolist() == [[1, 1, 1]]
    assert encoder.starts == 1


def test_an_invalid_frame_is_refused_before_it_is_sent(tmp_path):
    encoder = EncoderProcess(EncoderConfig(model="any"), log_path=tmp_path / "log", start_timeout_s=1)

    for wrong in (np.zeros((2, 2, 3), np.uint8), np.zeros((1, 2, 2, 3), np.float32), np.zeros((1, 0, 2, 3), np.uint8)):
        with pytest.raises(ValueError, match="frames are uint8"):
            encoder.embed_images([wrong])
    assert encoder.starts == 0


def test_a_pool_shares_requests_and_goes_on_without_encoder_that_cannot_be_loaded(make_encoder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stuck = EncoderProcess(
        EncoderConfig(model=str(pipe)),
        log_path=tmp_path / "stuck.log",
        start_timeout_s=0.5,
        command=stub_encoder.COMMAND,
    )
    well = make_encoder()

    with EncoderPool([stuck, well]) as pool:
        found = [pool.embed_images([frames_of(value)]) for value in range(5)]

    assert [vectors.tolist() for vectors in found] == [[[value] * 3] for value in range(5)]
    assert well.images_embedded == 5


@pytest.mark.system
def test_a_pool_without_usable_encoder_says_why(make_encoder, tmp_path):
    (tmp_path / "model").write_text("It has no weights.")

    with EncoderPool([make_encoder(), make_encoder()]) as pool, pytest.raises(ModelError, match="It has no weights"):
        pool.embed_images([frames_of(1)])


def test_an_encoder_numbers_gpus_as_the_driver_does_and_detects_them_without_cuda():
    environment = encoder_environment(EncoderConfig(model="m", devices=("1",)))

    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"


def test_a_checkpoint_of_openclip_is_refused_by_name(tmp_path):
    (tmp_path / "open_clip_config.json").write_text("{}")

    with pytest.raises(
        ModelError,
        match=f"{tmp_path} has no config.json; name a version that .*OpenCLIP",
    ):
        read_encoder_info(Settings(), str(tmp_path))


def test_a_model_is_opened_without_starting_it(tmp_path):
    settings = Settings(home=tmp_path)
    model_info = read_encoder_info(settings, str(TINY_ENCODER))

    assert (model_info.identity.name, model_info.location) == ("reelabel-tiny-siglip", str(TINY_ENCODER))
    assert open_encoder(settings, model_info).starts == 0
