"""Which live requests the engine is given, in what order, and what is replied: without an engine."""

import math
from types import SimpleNamespace

import pytest

from reelabel_engine.errors import InferenceError, PromptTooLongError
from reelabel_engine.live.scheduler import LiveScheduler
from reelabel_engine.protocol import LiveDone, LiveQuery, LiveRequest, LiveText, Rejected, RequestRef

ITEMS = {name: SimpleNamespace(token_ids=(ord(name),) * 10, time_s=None) for name in "abcdef"}
WORDS, CHOICES = LiveQuery(text="What?"), LiveQuery(text="Which?", choices=("red", "green"))
HEAD, TAIL = (1, 2), (3,)


class Made(SimpleNamespace):
    """What vLLM has made of a request since the last step."""

    def __init__(self, number, *tokens, finished=False, text="", reason="stop", logprobs=None):
        output = SimpleNamespace(
            token_ids=tokens, text=text, finish_reason=reason if finished else None, logprobs=[logprobs]
        )
        super().__init__(
            request_id=f"live {number}",
            outputs=[output],
            finished=finished,
            prompt_token_ids=[0] * 7,
            num_cached_tokens=5 if finished else None,
        )


class Desk:
    """A scheduler whose engine keeps what it is given."""

    def __init__(self, **limits):
        self.added, self.aborted, self.refusal = {}, [], None
        limits = {"max_model_len": 100, "step_tokens": 30, "positions": None, "positions_per_s": 2.0} | limits
        self.scheduler = LiveScheduler(self._add, self.aborted.extend, **limits)

    def _add(self, name, prompt):
        if self.refusal:
            raise self.refusal
        self.added[name] = prompt

    def receive(self, number, names, query=None, *, fresh=1, items=ITEMS, tail=TAIL, **facts):
        """Receive a request for some items, all of which came with it."""
        message = self.expect(number, names, query, fresh=fresh, **facts)
        self.render(message, {name: items[name] for name in names}, tail=tail)

    def expect(self, number, names, query=None, *, fresh=1, new=None, **facts):
        message = LiveRequest(
            number=number,
            session="s",
            salt="x",
            system_prompt=None,
            hashes=tuple(names),
            items={},
            fresh=fresh,
            query=query,
            **facts,
        )
        self.scheduler.items.expect("s", names if new is None else new)
        return message

    def render(self, message, items, *, tail=TAIL, head=HEAD):
        query = message.query
        choices = (frozenset({7}), frozenset({8, 9})) if query and query.choices else ()
        ends = SimpleNamespace(head=head, tail=tail if query else (), choices=choices)
        self.scheduler.receive(message, items, ends)

    @property
    def order(self):
        return [int(name.removeprefix("live ")) for name in self.added]

    def replies(self):
        return [(ref.number, reply) for ref, reply in self.scheduler.replies()]


@pytest.fixture
def desk():
    return Desk()


def test_a_prompt_is_its_head_its_items_side_by_side_and_its_tail(desk):
    desk.receive(1, "ab", CHOICES)

    prompt = desk.added["live 1"]
    assert prompt.ids == [1, 2, *[97] * 10, *[98] * 10, 3]
    assert prompt.items == [("a", ITEMS["a"], 2), ("b", ITEMS["b"], 12)]
    assert prompt.choices == (frozenset({7}), frozenset({8, 9}))


def test_a_question_is_admitted_at_once_and_a_prefix_when_the_engine_asks_for_more(desk):
    desk.receive(1, "a")
    desk.receive(2, "a", WORDS)
    assert desk.order == [2]
    assert not desk.scheduler.is_idle

    desk.scheduler.admit()

    assert desk.order == [2]  # until the question has its first token
    desk.scheduler.collect([Made(2, 5)])
    desk.scheduler.admit()
    assert desk.order == [2, 1]


def test_prefixes_are_admitted_up_to_the_tokens_of_a_step_and_more_once_they_are_read(desk):
    for number in range(1, 6):
        desk.receive(number, "abcd", fresh=1)

    desk.scheduler.admit()
    assert desk.order == [1, 2, 3]
    desk.scheduler.collect([Made(1, 5, finished=True)])
    desk.scheduler.admit()

    assert desk.order == [1, 2, 3, 4]


def test_only_items_that_were_not_read_count_as_work(desk):
    desk.receive(1, "abcd", fresh=3)
    desk.receive(2, "abcd", fresh=1)

    desk.scheduler.admit()

    assert desk.order == [1]


def test_beside_an_answer_that_is_being_written_one_prefix_is_read_at_a_time(desk):
    desk.receive(1, "a", WORDS)
    desk.scheduler.collect([Made(1, 5)])
    desk.receive(2, "b")
    desk.receive(3, "c")

    desk.scheduler.admit()
    assert desk.order == [1, 2]
    desk.scheduler.collect([Made(2, 5, finished=True)])
    desk.scheduler.admit()

    assert desk.order == [1, 2, 3]


def test_a_request_waits_until_all_its_items_are_rendered(desk):
    first = desk.expect(1, "ab", WORDS)
    desk.render(first, {"a": ITEMS["a"]})
    assert desk.order == []
    assert desk.scheduler.is_idle  # what is being rendered announces itself

    desk.receive(2, "b", WORDS)

    assert desk.order == [1, 2]


@pytest.mark.parametrize("part", ["an item", "the question"])
def test_a_request_with_a_part_that_cannot_be_rendered_is_rejected(desk, part):
    rejected = Rejected(code="inference_failed", stage="inference", message="It is no picture.")
    message = desk.expect(1, "ab", WORDS)

    if part == "an item":
        desk.render(message, {"a": ITEMS["a"], "b": rejected})
    else:
        desk.scheduler.receive(message, ITEMS, rejected)

    assert desk.replies() == [(1, rejected)]
    assert desk.order == []
    assert desk.replies() == []


def test_a_request_whose_items_were_dropped_is_rejected(desk):
    message = desk.expect(1, "ab", WORDS)
    desk.scheduler.items.drop("s", "a")

    desk.render(message, ITEMS)

    [(number, reply)] = desk.replies()
    assert (number, reply.code) == (1, "inference_failed")
    assert "dropped before" in reply.message


def test_a_request_that_the_engine_refuses_is_rejected_and_no_longer_in_flight(desk):
    desk.refusal = InferenceError("vLLM does not like it.")

    desk.receive(1, "a", WORDS)

    assert desk.replies() == [(1, Rejected.of(desk.refusal))]
    assert desk.scheduler.is_idle


@pytest.mark.parametrize(("most", "is_admitted"), [(24, True), (23, False)])
def test_a_prompt_leaves_room_for_a_token_of_the_answer(most, is_admitted):
    desk = Desk(max_model_len=most)

    desk.receive(1, "ab", WORDS)  # 2 tokens, two items of 10, 1 token

    assert bool(desk.added) is is_admitted
    if not is_admitted:
        [(_, reply)] = desk.replies()
        assert reply.code == PromptTooLongError.code
        assert "have 23 tokens, but the model takes 22; choose a smaller window" in reply.message


TIMED = {name: SimpleNamespace(token_ids=(5,) * 10, time_s=time_s) for name, time_s in (("a", 10.0), ("b", 20.0))}


@pytest.mark.parametrize(
    ("positions", "has_audio", "last"),
    [(44, False, None), (43, False, 43), (47, True, 47), (48, True, None), (None, False, None)],
)
def test_times_that_take_a_prompt_beyond_the_models_positions_are_refused(positions, has_audio, last):
    desk = Desk(positions=positions)

    desk.receive(1, "ab", WORDS, items=TIMED, has_audio=has_audio)  # 23 tokens, and 10 s at 2 positions a second

    refused = [reply.message for _, reply in desk.replies()]
    assert len(refused) == (last is not None)
    assert all(
        f"to position {last}, but the model's positions end at {positions - 1}; choose" in each for each in refused
    )


def test_items_without_times_take_no_more_positions_than_tokens():
    desk = Desk(positions=20)

    desk.receive(1, "ab", WORDS)

    assert desk.order == [1]


def test_an_answer_in_words_comes_piece_by_piece_and_ends_with_its_counts(desk):
    desk.receive(1, "a", WORDS)

    desk.scheduler.collect([Made(1, 5, 6, text="A re"), Made(9, 1)])
    desk.scheduler.collect([Made(1, text="")])
    desk.scheduler.collect([Made(1, 7, text="d", finished=True, reason="length")])

    done = LiveDone(prompt_tokens=7, cached_tokens=5, output_tokens=3, finish_reason="length")
    assert desk.replies() == [(1, LiveText(text="A re")), (1, LiveText(text="d")), (1, done)]
    assert desk.scheduler.is_idle


def test_a_prefix_that_was_read_is_reported_without_its_token(desk):
    desk.receive(1, "a")
    desk.scheduler.admit()

    desk.scheduler.collect([Made(1, 5, text="x", finished=True)])

    assert desk.replies() == [(1, LiveDone(prompt_tokens=7, cached_tokens=5, output_tokens=1))]


@pytest.mark.parametrize("tokens", [{7: 0.1, 9: 0.3}, {}])
def test_choices_are_answered_by_their_probabilities_at_once_or_rejected_without_any(desk, tokens):
    desk.receive(1, "a", CHOICES)
    logprobs = {token: SimpleNamespace(logprob=math.log(share)) for token, share in tokens.items()}

    desk.scheduler.collect([Made(1, 7, finished=True, reason="length", logprobs=logprobs)])

    [(number, reply)] = desk.replies()
    assert number == 1
    if tokens:
        assert reply.probabilities == pytest.approx((0.25, 0.75))
        assert (reply.finish_reason, reply.output_tokens) == ("stop", 1)
    else:
        assert reply.code == "inference_failed"


@pytest.mark.parametrize("state", ["unrendered", "waiting", "in flight"])
def test_a_request_that_is_cancelled_is_given_up_wherever_it_is(desk, state):
    if state == "unrendered":
        desk.render(desk.expect(1, "ab", WORDS), {"a": ITEMS["a"]})
        desk.render(desk.expect(2, "ab", WORDS, new=""), {})
    elif state == "waiting":
        desk.receive(1, "a")
        desk.receive(2, "a")
    else:
        desk.receive(1, "a", WORDS)
        desk.receive(2, "a", WORDS)

    desk.scheduler.cancel(1)

    assert desk.aborted == (["live 1"] if state == "in flight" else [])
    if state == "unrendered":
        desk.receive(3, "b", WORDS)
    desk.scheduler.admit()
    desk.scheduler.collect([Made(1, 5, finished=True), Made(2, 5, finished=True)])
    assert 2 in desk.order
    assert {number for number, _ in desk.replies()} == {2}


def test_replies_are_numbered_as_their_requests(desk):
    desk.receive(5, "a", WORDS)
    desk.scheduler.collect([Made(5, 1, text="x")])

    assert desk.scheduler.replies() == [(RequestRef(5), LiveText(text="x"))]
