import shutil

import pytest

from flows.compare.candidates import format_sampling, parse_sampler, resolve_candidates
from flows.run.request import QuestionOptions
from infra.settings import ChunkOptions, PromptOptions, Settings
from reelabel.errors import ConfigurationError
from tasks.model.identity import TINY_MODEL


def names(*samplers, **options):
    candidates, baseline = resolve_candidates(samplers, [], Settings(), **options)
    return [candidate.name for candidate in candidates], baseline


def test_the_native_sampler_and_sixteen_uniform_frames_are_added_as_references():
    # The tiny model was trained with 16 uniform frames: both are one candidate.
    assert names("keyframes", "keyframes:4") == (["keyframes:16", "keyframes:4", "uniform:16"], "uniform:16")


def test_without_references_the_baseline_is_the_first_sampler_or_the_given_one():
    assert names("keyframes", "num_frames:8", references=False) == (["keyframes:16", "num_frames:8"], "keyframes:16")
    assert names("keyframes", references=False, baseline="uniform:8") == (["keyframes:16", "uniform:8"], "uniform:8")


@pytest.mark.parametrize(
    "text",
    [
        "uniform:8,fps=4.0",
        "qwen3_vl,fps=1.5,max_frames=32",
        "molmo2:8",
        "fps,fps=4.0",
        "auto:16,still_tasks=scene|text",
    ],
)
def test_a_candidate_is_written_as_it_is_parsed(text):
    (candidate, *_), _ = resolve_candidates([text], [], Settings())

    assert candidate.name == text
    assert format_sampling(candidate.spec.sampling) == text
    assert candidate.overrides.sampling == parse_sampler(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a sampler"),
        ("uniform:many", "is not a sampler"),
        ("uniform,4", "is not a sampler"),
        ("keyframe", r"sampler keyframe: Unknown sampler keyframe; did you mean keyframes or"),
        ("uniform,fps=fast", "fps fast"),
        ("keyframes,fps=4", "takes no fps"),
        ("keyframes:0", "must be at least 1"),
    ],
)
def test_a_candidate_that_cannot_be_parsed_is_explained(text, message):
    with pytest.raises(ConfigurationError, match=message):
        resolve_candidates([text], [], Settings())


def test_a_single_candidate_is_refused():
    with pytest.raises(ConfigurationError, match="Only one configuration to compare, uniform:16"):
        resolve_candidates(["uniform:16"], [], Settings())


def test_the_same_candidate_with_two_models_has_two_names(tmp_path):
    other = shutil.copytree(TINY_MODEL, tmp_path / "other")
    candidates, baseline = resolve_candidates(["keyframes"], [str(TINY_MODEL), str(other)], Settings())

    assert baseline == "uniform:16 @ reelabel-tiny"
    assert [candidate.name for candidate in candidates] == [
        "keyframes:16 @ reelabel-tiny",
        "uniform:16 @ reelabel-tiny",
        "keyframes:16 @ other",
        "uniform:16 @ other",
    ]


def test_every_frame_is_written_as_it_is_read():
    (candidate, *_), _ = resolve_candidates(["uniform:-1,frame_recovery=False"], [], Settings())

    assert candidate.name == "uniform:-1,frame_recovery=False"
    assert candidate.spec.sampling.num_frames == -1


def test_every_candidate_asks_in_the_same_way():
    asking = QuestionOptions(prompts=PromptOptions(permutations=2), chunks=ChunkOptions(chunk_s=60))

    candidates, _ = resolve_candidates(["keyframes", "fps"], [], Settings(), asking=asking)

    assert len(candidates) > 2
    for each in candidates:
        assert (each.spec.permutations, each.spec.chunk_s, each.overrides.chunks) == (2, 60, asking.chunks)
