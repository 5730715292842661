"""Options of the library: what is refused, in which words, and what is taken for what."""

import pickle
from dataclasses import dataclass, fields
from fractions import Fraction
from ipaddress import ip_network
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr

from reelabel.errors import InvalidOptionError
from reelabel.integrations.ray_data.prepare import PrepareVideo
from reelabel.options import Limits, S3Options, WebOptions, check_options, option, read_options, reveal
from reelabel.sampling.options import Sampling

JUNK = ("junk", "", -2, 0, 1e12, 0.5, float("nan"), float("inf"), [1], {"a": 1}, True, b"x", "x" * 100_000, object())
KINDS = [Sampling, S3Options, WebOptions, Limits]


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(kind, each.name, id=f"{kind.__name__}.{each.name}") for kind in KINDS for each in fields(kind)],
)
def test_every_option_refuses_what_it_cannot_be_and_is_named(kind, name):
    refused = []
    for junk in JUNK:
        try:
            kind(**{name: junk})
        except InvalidOptionError as error:
            refused.append(error)

    assert refused
    for error in refused:
        assert {fault.where for fault in error.faults} <= {name, ""}, error.message
        assert error.message.startswith(f"Invalid options of {kind.__name__}: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": True}, "num_frames: must be a whole number."),
        ({"num_frames": 2.0}, "num_frames: must be a whole number."),
        ({"num_frames": 2049}, "num_frames: must be at most 2048."),
        ({"fps": "3"}, "fps: must be a number."),
        ({"sampler": "uniform", "drop_similar": 1}, "drop_similar: must be less than 1."),
        ({"size_multiple_px": None}, "size_multiple_px: must be a whole number."),
        ({"frame_recovery": 1}, "frame_recovery: must be true or false."),
        ({"hdr": "pq"}, "hdr: must be 'sdr' or 'as_decoded'."),
        ({"sampler": "auto", "still_tasks": "colour"}, "still_tasks: must be a list."),
        ({"sampler": "auto", "still_tasks": [3]}, "still_tasks: must be text."),
        ({"sampler": "relevant", "times_ms": []}, "times_ms: must have at least 1 entries."),
        ({"escalate_below": "low"}, "escalate_below: must be a number or 'fitted'."),
        ({"escalate_below": True}, "escalate_below: must be a number or 'fitted'."),
        (
            {"num_frames": 0, "max_pixels": 1},
            "num_frames: must be at least 1, or -1 .*; max_pixels: must",
        ),
    ],
)
def test_a_refusal_says_what_the_value_must_be(options, message):
    with pytest.raises(InvalidOptionError, match=f"^Invalid options of Sampling: {message}"):
        Sampling(**options)


def test_options_may_be_written_more_simply():
    sampling = Sampling(sampler="auto", max_gap_s=3, still_tasks=["colour"], hdr="sdr")
    numbers = Sampling(sampler="fps", fps=Fraction(5, 2), max_frames=np.int64(8), drop_similar=np.float32(0.5))
    web, s3 = WebOptions(allow_networks=["10.1.0.0/16"], timeout_s=3), S3Options(ca_file="ca.pem")

    assert (repr(sampling.max_gap_s), sampling.still_tasks, sampling.hdr) == ("3.0", ("colour",), None)
    assert repr(numbers) == repr(Sampling(sampler="fps", fps=2.5, max_frames=8, drop_similar=0.5))
    assert (web.allow_networks, repr(web.timeout_s)) == ((ip_network("10.1.0.0/16"),), "3.0")
    assert s3.ca_file == Path("ca.pem").absolute()
    assert read_options(Sampling, sampling.to_dict()) == sampling
    with pytest.raises(InvalidOptionError, match=r"allow_networks: is not a network; write it as 10\.1\.0\.0/16"):
        WebOptions(allow_networks=["10.1.2.3/16"])


def test_secrets_are_not_shown():
    options = S3Options(access_key_id="AKIA", secret_access_key=SecretStr("hush"))

    assert "AKIA" not in repr(options)
    assert "hush" not in repr(options)
    assert (reveal(options.access_key_id), reveal(options.secret_access_key), reveal(None)) == ("AKIA", "hush", None)


def test_a_dictionary_with_unknown_or_missing_options_is_refused():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Sized:
        size: int = option(ge=1)
        limits: Limits = option(Limits())

        def __post_init__(self):
            check_options(self, Sized)

    with pytest.raises(InvalidOptionError, match=r"colour: unknown option; size: is required\.$"):
        read_options(Sized, {"colour": 1})


def test_the_fault_of_an_option_within_another_is_named_by_both():
    with pytest.raises(InvalidOptionError) as raised:
        PrepareVideo(sampling={"num_frames": 0}, s3={"max_attempts": 0}, web={"colour": 1}, limits=3)

    assert [fault.where for fault in pickle.loads(pickle.dumps(raised.value)).faults] == [
        "sampling.num_frames",
        "s3.max_attempts",
        "web.colour",
        "limits",
    ]


def test_a_pickled_sampling_is_the_same():
    sampling = Sampling(sampler="auto", still_tasks=("colour",))

    assert pickle.loads(pickle.dumps(sampling)) == sampling


@pytest.mark.parametrize(("read_timeout_s", "connect_timeout_s"), [(60, 10), (0.5, 0.5)])
def test_a_connection_is_not_waited_for_longer_than_data(read_timeout_s, connect_timeout_s):
    assert S3Options(read_timeout_s=read_timeout_s).connect_timeout_s == connect_timeout_s
