"""Places of requests."""

import pytest

from flows.serve.refusals import RequestRefusedError
from flows.serve.requests.admission import Admission


def test_a_request_without_a_place_is_refused_and_told_when_to_come_again():
    admission = Admission(1)

    with admission.place("classify"), pytest.raises(RequestRefusedError) as refused, admission.place("classify"):
        pass

    assert (refused.value.code, refused.value.status) == ("busy", 429)
    assert refused.value.retry_after_s >= 1


def test_a_place_is_free_again_however_its_request_ended():
    admission = Admission(1)

    with pytest.raises(ZeroDivisionError), admission.place("classify"):
        raise ZeroDivisionError
    with admission.place("classify"):
        assert admission.taken == 1

    assert admission.taken == 0
