"""A model of live sessions that reads nothing: where the session is tested, and not what answers."""

import re
import threading

from infra.errors import EngineLostError
from reelabel_engine.errors import InferenceError
from reelabel_engine.protocol import LiveDone, LiveText
from tasks.live.model import LiveInfo, Speech

SPOKEN = bytes(range(256)) * 15  # 80 ms
INFO = LiveInfo(
    model="scripted",
    size_multiple_px=28,
    max_frame_px=200_704,
    versions={"scripted": "1"},
)


class ScriptedModel:
    """Answers a question with the times of the frames that it sees.

    Attributes:
        prefilled: Prefixes that were read before a question, in order.
        requests: Prefixes and questions.
        losses: How often the engine is lost before it answers; what is read then is lost as well.
        fails_with: Raised instead of an answer.
        too_long: What is raised by a prefix of more than four frames, if anything.
        may_read: Prefixes are read while it is set.
        may_answer: Questions are answered while it is set.
        may_go_on: An answer in words goes on after its first piece while it is set.
        probabilities: Of the next questions with choices.
    """

    def __init__(self):
        self.prefilled, self.requests, self.known = [], [], set()
        self.losses = 0
        self.fails_with = self.too_long = None
        self.may_read, self.may_answer = threading.Event(), threading.Event()
        self.may_read.set()
        self.may_answer.set()
        self.may_go_on, self.cancelled = threading.Event(), set()
        self.may_go_on.set()
        self.probabilities = []
        self._read, self._is_lost = set(), False

    def wait_ready(self):
        return INFO

    def open(self, session):
        assert session not in self.known
        self.known.add(session)

    def prefill(self, goal):
        for prefix in goal:
            if self.too_long and prefix.frames > 4:
                raise self.too_long
            key = prefix.session, tuple(item.times_s for item in prefix.items)
            if key not in self._read:
                break
        else:
            return None
        self.prefilled.append(prefix)
        while not self.may_read.wait(0.01):
            if prefix.session not in self.known:
                raise InferenceError("The session has ended.")
        if self._is_lost:
            self._is_lost = False
            raise EngineLostError("The engine was lost.")
        self._read.add(key)
        return LiveDone(prompt_tokens=prefix.frames, cached_tokens=0)

    def lose(self):
        """Lose what is being read."""
        self._is_lost = True
        self.may_read.set()

    def ask(self, prefix, query):
        assert prefix.session in self.known
        self.requests.append((prefix, query))
        self.cancelled.discard(prefix.session)
        while not self.may_answer.wait(0.01):
            if prefix.session in self.cancelled:
                return
        if self.fails_with:
            raise self.fails_with
        times = [time for item in prefix.items for time in item.times_s[: item.frames]]
        text = " ".join(f"{time:g}" for time in times)
        if self.losses:
            self.losses -= 1
            yield LiveText(text="lost ")
            raise EngineLostError("The engine was lost.")
        probabilities = ()
        if query.choices:
            others = len(query.choices) - 1
            probabilities = self.probabilities.pop(0) if self.probabilities else (0.75, *[0.25 / others] * others)
        else:
            for word in re.findall(r" ?\S+", text):
                yield LiveText(text=word)
                while not self.may_go_on.wait(0.01):
                    if prefix.session in self.cancelled:
                        return
            if query.produces_speech:
                yield Speech(data=SPOKEN)
        done = {"prompt_tokens": 10, "cached_tokens": 8, "output_tokens": len(times)}
        yield LiveDone(**done, probabilities=probabilities)

    def cancel(self, session):
        assert session in self.known
        self.cancelled.add(session)

    def close_session(self, session):
        self.known.discard(session)
        self.cancelled.add(session)  # its questions end as well
