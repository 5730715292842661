"""The HTTP server of tests."""

from http.server import ThreadingHTTPServer


class HttpServer(ThreadingHTTPServer):
    """A server that takes many connections at once.

    By default, only five may wait to be accepted; on a busy machine, the kernel would reset some of the others.
    """

    request_queue_size = 128
