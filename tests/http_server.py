"""The HTTP servers of tests."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers requests, and prints nothing about them."""

    def log_message(self, *_arguments):
        """Print nothing."""

    def read_body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def respond(self, status, body=b"", **headers):
        """Send a whole response; headers by name, whose hyphens may be underscores."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class HttpServer(ThreadingHTTPServer):
    """A server that takes many connections at once, and whose end waits for none of them.

    By default, only five may wait to be accepted; on a busy machine, the kernel would reset some of the others.
    """

    request_queue_size = 128

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serve(handler, *, tls=None, **shared):
    """Run a server in a thread; what is shared is an attribute of it. With `tls`, a context, it is reached by HTTPS."""
    with HttpServer(("127.0.0.1", 0), handler) as server:
        vars(server).update(shared)
        server.handle_error = lambda *_: None  # of a reader that had enough, or that distrusts the certificate
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
