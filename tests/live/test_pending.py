"""Standing questions: when they are asked, and which answers are sent."""

import pytest

from tasks.live.events import ResponseDone
from tasks.live.messages import VideoQuery
from tasks.live.pending import Standing


def standing(**fields):
    return Standing(
        VideoQuery(type="video.query", text="?", query_id="s", choices=("yes", "no"), **fields), arrived_s=0
    )


@pytest.mark.parametrize(
    ("every_s", "frames_s", "expected_s"),
    [
        pytest.param(2, [0, 1, 2, 3, 4], [0, 2, 4], id="by the clock"),
        pytest.param(2, [7, 8, 9, 10], [7, 9], id="from the first frame on"),
        pytest.param(2, [0, 2.5, 4, 6.1], [0, 2.5, 4, 6.1], id="the rate stays after a late frame"),
        pytest.param(2, [0, 5, 5.5, 6, 7, 8], [0, 5, 6, 8], id="not faster than twice after a gap"),
        pytest.param(None, [0, 0.5, 1, 1.5, 2], [0, 1, 2], id="every second by default"),
    ],
)
def test_it_is_asked_as_the_clock_of_the_frames_advances(every_s, frames_s, expected_s):
    question = standing(every_s=every_s, on_change=every_s is None)
    asked_s = []
    for time_s in frames_s:
        if question.is_due(time_s):
            question.begin(time_s)
            assert not question.is_due(time_s + 100), "it is being answered"
            question.is_pending = False
            asked_s.append(time_s)

    assert asked_s == expected_s


@pytest.mark.parametrize(
    ("margin", "answers", "news"),
    [
        pytest.param({}, [0.9, 0.45, 0.375, 0.65], [0.9, 0.375, 0.65], id="by a fifth"),
        pytest.param({"change_margin": 0}, [0.9, 0.49, 0.51, 0.6], [0.9, 0.49, 0.51], id="by anything"),
        pytest.param({"change_margin": 0.5}, [0.9, 0.3, 0.25, 0.74, 0.75], [0.9, 0.25, 0.75], id="by half"),
    ],
)
def test_an_answer_is_sent_if_another_choice_leads_by_the_margin(margin, answers, news):
    question, sent = standing(on_change=True, **margin), []
    for yes in answers:
        done = ResponseDone.model_construct(choice=int(yes < 0.5), probabilities=(yes, 1 - yes))
        if question.is_news(done):
            question.note_sent(done)
            sent.append(yes)

    assert sent == news


def test_without_on_change_every_answer_is_sent():
    question = standing(every_s=1)
    for _ in range(2):
        done = ResponseDone.model_construct(choice=0, probabilities=(0.9, 0.1))
        assert question.is_news(done)
        question.note_sent(done)


def test_an_error_is_sent_once_until_there_is_an_answer_or_another_error():
    question = standing(every_s=1)

    sent = [question.is_new_error(code) for code in ("engine_lost", "engine_lost", "query_failed", "engine_lost")]
    question.is_news(ResponseDone.model_construct(choice=0, probabilities=(0.9, 0.1)))

    assert [*sent, question.is_new_error("engine_lost")] == [True, False, True, True, True]
