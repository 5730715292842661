"""Comparison of samplers with the loaders of vLLM that they reproduce, on files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.media.matrix import Cell, matrix
from benchmarks.media.wrong_headers import claims_half_the_length, claims_twice_the_frames
from reelabel.errors import ConfigurationError, VideoError
from reelabel.extract import extract_local
from reelabel.integrations.vllm.comparison import Reason, ask_loaders, compare
from reelabel.sampling.options import Sampling
from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reelabel.integrations.vllm.comparison import LoaderChoice

SAMPLINGS = (
    Sampling(sampler="uniform"),
    Sampling(sampler="uniform", num_frames=512),
    Sampling(sampler="uniform", fps=4),
    Sampling(sampler="dynamic"),
    Sampling(sampler="qwen2_vl"),
    Sampling(sampler="qwen3_vl", fps=6),
    Sampling(sampler="glm46v"),
    Sampling(sampler="glm5_next"),
    Sampling(sampler="glmga"),
    Sampling(sampler="molmo2"),
    Sampling(sampler="openpangu"),
    Sampling(sampler="llava_onevision2"),
    Sampling(sampler="minimax_m3_vl"),
    Sampling(sampler="embedding_gemma2"),
    Sampling(sampler="clef_omni"),
)
EQUAL = "equal"
_BOTH_REFUSE, _REFUSED = "both refuse", "Reelabel refuses: its sampler wants no frame"
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of file.

    Attributes:
        title: Its name in the table.
        files: What makes each file, by name.
    """

    title: str
    files: Mapping[str, Callable[[], bytes]]


def kinds() -> list[Kind]:
    """Return the files to compare: good ones, and those about which header and frames disagree."""

    def cells(structure: str, *, without: str = "") -> dict[str, Callable[[], bytes]]:
        found = [cell for cell in matrix() if cell.structure == structure and cell.container != without]
        return {cell.name: cell.make for cell in found}

    gap = Cell("avi", "h264", "variable-rate")
    headers = {each.__name__: each for each in (claims_twice_the_frames, claims_half_the_length)}
    return [
        Kind(title="with B-frames", files=cells("b-frames-h264")),
        Kind(title="variable rate", files=cells("variable-rate", without="avi")),
        Kind(title="AVI with gaps", files={gap.name: gap.make}),
        Kind(title="start later than zero", files=cells("start-later")),
        Kind(title="wrong header", files=headers),
        Kind(title="no index", files=cells("no-index")),
        Kind(title="edit list that trims", files=cells("edit-trims")),
    ]


def kinds_of(folder: Path) -> list[Kind]:
    """Return the files of a folder, a kind for each ending.

    Raises:
        ConfigurationError: There are none.
    """
    files = [path for path in sorted(folder.glob("*")) if path.is_file()]
    if not files:
        raise ConfigurationError(f"There are no files in {folder}; name a folder of videos.")
    endings = sorted({path.suffix for path in files})
    return [
        Kind(title=ending, files={path.name: path.read_bytes for path in files if path.suffix == ending})
        for ending in endings
    ]


def compare_kinds(compared: list[Kind]) -> dict[str, dict[str, list[str]]]:
    """Compare every sampler on every file.

    Returns:
        By kind and by outcome, which is `EQUAL` or the reasons of the differences, the names of file and sampler.
    """
    with TemporaryDirectory(prefix="reelabel-") as folder:
        requests, names = [], []
        for kind in compared:
            for name, make in kind.files.items():
                path = Path(folder) / name.replace("/", "-")
                path.write_bytes(make())
                requests += [(path, sampling) for sampling in SAMPLINGS]
                names += [(kind.title, f"{name} {sampling.sampler}") for sampling in SAMPLINGS]
        environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))
        choices = ask_loaders(requests, environment=environment, timeout_s=_TIMEOUT_S, python=find_python().path)
        outcomes = [_outcome(*request, choice) for request, choice in zip(requests, choices, strict=True)]
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (title, name), outcome in zip(names, outcomes, strict=True):
        found[title][outcome].append(name)
    return {title: dict(outcomes) for title, outcomes in found.items()}


def unexplained(found: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """Return the names of files and samplers that differ for no known reason."""
    return [
        name
        for outcomes in found.values()
        for outcome, names in outcomes.items()
        if Reason.UNKNOWN in outcome
        for name in names
    ]


def _outcome(path: Path, sampling: Sampling, choice: LoaderChoice) -> str:
    try:
        ours = extract_local(path, sampling=sampling)
    except VideoError:
        return _REFUSED if choice.shown else _BOTH_REFUSE
    return "; ".join(compare(ours, choice, sampling).reasons) or EQUAL
