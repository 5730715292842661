"""The parameters of flows: their bounds, and the sentence about one that does not fit."""

import re

import pytest

from flows.run.request import BackfillRequest, ClassifyRequest, EvaluateRequest, SurveyRequest
from infra.settings.types import title_of
from reelabel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("request_type", "fits", "exceeds"),
    [
        (ClassifyRequest, {"dataset": "d" * 200}, {"dataset": "d" * 201}),
        (ClassifyRequest, {"once_per_duplicate": 0.5}, {"once_per_duplicate": 0.49}),
        (ClassifyRequest, {"once_per_duplicate": 1}, {"once_per_duplicate": 1.01}),
        (ClassifyRequest, {"manifest": "m"}, {"manifest": ""}),
        (BackfillRequest, {"overrides": {"model": "m" * 1000}}, {"overrides": {"model": "m" * 1001}}),
        (SurveyRequest, {"sample": 2}, {"sample": 1}),
        (SurveyRequest, {"limit_s": 0}, {"limit_s": -0.1}),
        (SurveyRequest, {"model": "m" * 1000}, {"model": "m" * 1001}),
        (EvaluateRequest, {"samplers": ["fps"]}, {"samplers": []}),
        (EvaluateRequest, {"samplers": ["fps"] * 50}, {"samplers": ["fps"] * 51}),
        (EvaluateRequest, {"models": ["m"] * 20}, {"models": ["m"] * 21}),
        (EvaluateRequest, {"baseline": "b" * 200}, {"baseline": "b" * 201}),
        (EvaluateRequest, {"live": "u" * 1000}, {"live": "u" * 1001}),
    ],
)
def test_a_parameter_is_taken_up_to_its_bound(request_type, fits, exceeds):
    usual = {"manifest": "m.parquet"}

    assert request_type.of(**usual | fits)
    with pytest.raises(ConfigurationError, match=f"^{re.escape(title_of(next(iter(exceeds))))}[,:] "):
        request_type.of(**usual | exceeds)


def test_a_parameter_within_a_group_is_named_with_its_group_and_the_place_in_a_list_is_not():
    with pytest.raises(ConfigurationError, match=r"^Overrides, sampling, num frames: must be at most 2048\.$"):
        ClassifyRequest.of(manifest="m", overrides={"sampling": {"num_frames": 4000}})
    with pytest.raises(ConfigurationError, match=r"^Ids: "):
        BackfillRequest.of(manifest="m", ids=["a", 7])


def test_an_emptied_field_is_a_field_that_was_left_out():
    assert ClassifyRequest.of(manifest="m", dataset="").dataset is None


def test_what_a_flow_run_is_given_are_json_values_of_what_differs_from_the_defaults():
    request = BackfillRequest.of(manifest="m", ids=["a"], selection={"since": "2026-11-01"}, force=False)

    parameters = request.parameters

    assert parameters.keys() == {"manifest", "ids", "selection"}
    assert isinstance(parameters["selection"]["since"], str)
    assert BackfillRequest.of(**parameters) == request
