"""An HTTP service of a site's on loopback, for what the operator tells other systems."""

import threading
from http.server import HTTPServer
from typing import Self


class Quiet:
    """Goes before `BaseHTTPRequestHandler`: prints nothing, and knows what was sent along."""

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def log_message(self, *arguments):
        del arguments


class LoopbackService:
    """Answers in a thread of its own for as long as it is entered; `server` comes from its kind."""

    server: HTTPServer

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
