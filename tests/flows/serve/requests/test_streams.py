"""Streams of a service: each part follows the one before, and the most recent streams are known."""

from flows.serve.requests.streams import BEGINNING, StreamPosition, Streams, StreamState


def state(parts, chunk=0):
    return StreamState(parts=parts, position=StreamPosition(chunk=chunk))


def test_of_two_parts_at_once_the_second_is_described_again():
    streams = Streams()

    assert streams.advance("film", state(1, chunk=3))
    assert not streams.advance("film", state(1, chunk=9))
    assert streams.read("film").position.chunk == 3
    assert streams.advance("film", state(2, chunk=9))
    assert streams.read("another") == StreamState(0, BEGINNING)


def test_a_thousand_streams_are_known_and_the_one_without_a_part_for_longest_is_forgotten_first():
    streams = Streams()
    for number in range(1024):
        streams.advance(str(number), state(1))
    streams.advance("0", state(2))
    streams.advance("new", state(1))

    assert [streams.read(name).parts for name in ("0", "1", "2", "new")] == [2, 0, 1, 1]
