import pytest

from reelabel.errors import ConfigurationError
from tasks.model.engine.devices import assign_gpus, visible_gpus

GPUS = ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("gpus", "engines", "tensor_parallel_size", "expected"),
    [
        pytest.param(GPUS, "auto", 2, [("0", "1"), ("2", "3")], id="as many as the GPUs allow"),
        pytest.param(GPUS, 3, 1, [("0",), ("1",), ("2",)], id="one each"),
        pytest.param(GPUS, 1, 4, [()], id="one engine takes the first of all"),
        pytest.param([], "auto", 1, [()], id="a CPU has one"),
        pytest.param([], 2, 1, [(), ()], id="several, in order"),
    ],
)
def test_gpus_are_divided_among_engines(gpus, engines, tensor_parallel_size, expected):
    assert assign_gpus(gpus, engines=engines, tensor_parallel_size=tensor_parallel_size) == expected


def test_more_engines_than_gpus_are_refused():
    with pytest.raises(ConfigurationError, match="3 engines with 2 GPUs each need 6, but only 5 can be seen"):
        assign_gpus(GPUS, engines=3, tensor_parallel_size=2)


def test_only_gpus_that_the_environment_allows_are_used(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7f")

    assert visible_gpus() == ["3", "GPU-7f"]
