"""Whether a run's model is started beside the services: only if it is known before they stand that there is work."""

import pytest

from flows.cli.runs.ahead import needs_model
from infra.settings import Settings

OWN_DATABASE = {"database": {"url": "postgresql://localhost/reelabel"}}
OWN_STORE = {"store": {"uri": "s3://frames"}}


@pytest.mark.parametrize(
    ("kind", "force", "earlier", "chosen", "expected"),
    [
        pytest.param("classify", False, (), {}, True, id="first run"),
        pytest.param("describe", False, (), {}, True, id="first run that describes"),
        pytest.param("backfill", True, (), {}, False, id="backfill"),
        pytest.param("classify", False, ("postgres", "s3"), {}, False, id="there may be nothing to do"),
        pytest.param("describe", False, ("postgres", "s3"), {}, False, id="all may be described"),
        pytest.param("classify", True, ("postgres", "s3"), {}, True, id="all again"),
        pytest.param("describe", True, ("postgres", "s3"), {}, False, id="all may be embedded"),
        pytest.param("classify", False, (), OWN_DATABASE, False, id="own database"),
        pytest.param("classify", True, (), OWN_DATABASE | OWN_STORE, True, id="all again, own services"),
        pytest.param("describe", False, (), OWN_STORE, False, id="own store"),
        pytest.param("classify", True, (), {"model": {"backend": "openai"}}, False, id="a server"),
        pytest.param("classify", True, (), {"run": {"executor": "remote"}}, False, id="engines elsewhere"),
    ],
)
def test_a_model_is_started_ahead_if_it_is_bound_to_be_needed(tmp_path, kind, force, earlier, chosen, expected):
    for name in earlier:
        (tmp_path / name).mkdir()
    settings = Settings(home=tmp_path, **chosen)

    assert needs_model(kind, settings, force=force) is expected
