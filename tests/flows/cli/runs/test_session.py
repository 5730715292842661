import pytest

from flows.cli.runs.classify import options_of_session
from flows.run.request import QuestionOptions
from infra.settings import PromptOptions, SamplingOptions
from tasks.live.record.saved import SavedSession


@pytest.mark.parametrize(
    ("of_session", "override", "used"),
    [("Be brief.", None, "Be brief."), ("Be brief.", "Be kind.", "Be kind."), (None,) * 3],
)
def test_a_session_is_asked_again_with_its_own_system_prompt_unless_another_is_given(of_session, override, used):
    session = SavedSession(row={"config": {"system_prompt": of_session} if of_session else {}}, queries=[], parts=[])
    overrides = QuestionOptions(model="tiny", prompts=PromptOptions(system_prompt=override, permutations=2))

    found = options_of_session(session, overrides)

    assert (found.model, found.prompts) == ("tiny", PromptOptions(system_prompt=used, permutations=2))


def test_a_session_is_asked_again_with_all_its_frames_unless_others_are_chosen():
    session = SavedSession(row={"config": {}}, queries=[], parts=[])

    sampling = options_of_session(session, QuestionOptions()).sampling
    chosen = options_of_session(session, QuestionOptions(sampling=SamplingOptions(num_frames=4))).sampling

    assert (sampling.sampler, sampling.num_frames) == ("keyframes", -1)
    assert chosen == SamplingOptions(num_frames=4)
