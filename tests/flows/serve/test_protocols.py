"""The heads of requests that the server takes."""

import h11
import pytest

from flows.serve.protocols import MAX_HEAD_BYTES, _StrictConnection


def head(*lines):
    connection = _StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
    connection.receive_data(b"\r\n".join([b"POST /x HTTP/1.1", b"Host: a", *lines, b"", b""]))
    return connection.next_event()


def test_a_head_states_one_length():
    for line in (b"Content-Length: 4", b"Transfer-Encoding: chunked"):
        assert head(line).target == b"/x"
    with pytest.raises(h11.RemoteProtocolError, match="both Content-Length and Transfer-Encoding"):
        head(b"Content-Length: 4", b"Transfer-Encoding: chunked")


def test_a_head_is_bounded_also_if_it_arrives_at_once():
    lines = len(b"POST/x HTTP/1.1") + len(b"Hosta") + len(b"X") + 3 * 4
    longest = b"x" * (MAX_HEAD_BYTES - lines)

    assert head(b"X: " + longest).target == b"/x"
    with pytest.raises(h11.RemoteProtocolError, match="header is too long"):
        head(b"X: x" + longest)
