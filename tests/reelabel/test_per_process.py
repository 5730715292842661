"""What a process makes once."""

import multiprocessing
import os
import threading
import warnings

from reelabel.per_process import once_per_process


def test_threads_share_what_the_first_one_makes():
    names = []
    get = once_per_process(lambda name: names.append(name) or object())

    threads = [threading.Thread(target=get, args=("a",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert get("a") is get("a") is not get("b")
    assert names == ["a", "b"]


def test_a_forked_process_makes_its_own_even_while_a_thread_of_its_parent_makes_something():
    is_making, may_end = threading.Event(), threading.Event()

    @once_per_process
    def make(name):
        if name == "slow":
            is_making.set()
            may_end.wait()
        return os.getpid()

    make("quick")
    maker = threading.Thread(target=make, args=("slow",))
    maker.start()
    is_making.wait()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(make("quick")))
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of forking with threads
            child.start()
        assert ours.poll(10)
        assert ours.recv() == child.pid
    finally:
        child.kill()
        child.join()
        may_end.set()
        maker.join()
