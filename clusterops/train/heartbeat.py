"""Reports progress to the operator from a thread, and posts what it answers on the notice board.

The operator is never needed: while it can't be reached, training goes on and the thread tries again.
"""

import http.client
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from clusterops.api.heartbeat import PATH, Answer, Heartbeat, MalformedHeartbeat
from clusterops.train.environment import Endpoint
from clusterops.train.notice import NoticeBoard

log = logging.getLogger("clusterops.train")

FIRST_INTERVAL_SECONDS = 5.0
SHORTEST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 60.0
CALL_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_ANSWER_LIMIT_BYTES = 64 << 10
_TOKEN_LIMIT_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one call. `answer` is None unless the operator took the report; `wait_seconds` is
    None where the operator has not said when to come again.
    """

    answer: Answer | None
    wait_seconds: float | None
    stale: bool = False
    problem: str = ""


class OperatorClient:
    """One connection to the operator's endpoint, kept open between calls. Not for several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection: http.client.HTTPSConnection | None = None

    def report(self, heartbeat: Heartbeat) -> Reply:
        """Posts one report. Never raises for what the network or the operator does."""
        body = json.dumps(heartbeat.to_wire()).encode()
        reused = self._connection is not None
        try:
            try:
                return self._posted(body)
            except (http.client.RemoteDisconnected, ConnectionError):
                if not reused:
                    raise
                # The operator has closed a connection that was idle; that says nothing of it.
                self.close()
                return self._posted(body)
        except (OSError, http.client.HTTPException, MalformedHeartbeat, ValueError) as error:
            self.close()
            return Reply(None, None, problem=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Closes the connection; the next report opens one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _posted(self, body: bytes) -> Reply:
        connection = self._connection or self._connected()
        self._connection = connection
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token()}"}
        connection.request("POST", self._endpoint.path + PATH, body, headers)
        response = connection.getresponse()
        content = response.read(_ANSWER_LIMIT_BYTES + 1)
        if len(content) > _ANSWER_LIMIT_BYTES:
            raise ValueError("the answer is longer than any answer")
        if response.will_close:
            self.close()
        if response.status == 200:
            answer = Answer.from_wire(json.loads(content))
            return Reply(answer, _bounded(answer.interval_seconds))
        if response.status == 409:
            return Reply(None, LONGEST_WAIT_SECONDS, stale=True)
        wait = _retry_after(response.getheader("Retry-After"))
        return Reply(None, wait, problem=f"the operator answered {response.status}")

    def _connected(self) -> http.client.HTTPSConnection:
        # The files are read anew for each connection: both are rotated.
        ca_file = self._endpoint.ca_file
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        return http.client.HTTPSConnection(
            self._endpoint.host, self._endpoint.port, timeout=CALL_SECONDS, context=context
        )

    def _token(self) -> str:
        if self._endpoint.token_file is None:
            return ""
        with self._endpoint.token_file.open("r", encoding="ascii") as source:
            return source.read(_TOKEN_LIMIT_BYTES).strip()


class Reporter:
    """The thread. `progress` is called in it for each report, and must be cheap."""

    def __init__(
        self,
        client: OperatorClient,
        board: NoticeBoard,
        progress: Callable[[], Heartbeat],
    ) -> None:
        self._client: Final = client
        self._board = board
        self._progress = progress
        self._wake = threading.Event()
        self._last_call_until = 0.0
        self._closing = False
        self._told = False  # a problem is logged once until the operator answers again
        self._interval = FIRST_INTERVAL_SECONDS
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Sends the first report at once."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    def wake(self) -> None:
        """Has the next report sent now. Not for signal handlers."""
        self._wake.set()

    def close(self, seconds: float) -> None:
        """Sends a last report, trying again for at most `seconds` where it is not taken."""
        self._last_call_until = time.monotonic() + seconds
        self._closing = True
        self._wake.set()
        self._thread.join(seconds + 2 * CALL_SECONDS)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            closing = self._closing  # read before the report, so that the last one is complete
            reply = self._client.report(self._progress())
            self._take(reply)
            if closing and (reply.answer is not None or reply.stale or self._out_of_time()):
                break
            self._wake.wait(
                min(_RETRY_SECONDS, self._pause(reply)) if closing else self._pause(reply)
            )
        self._client.close()

    def _pause(self, reply: Reply) -> float:
        if reply.wait_seconds is not None:
            return reply.wait_seconds
        return min(self._interval, FIRST_INTERVAL_SECONDS)

    def _out_of_time(self) -> bool:
        return time.monotonic() >= self._last_call_until

    def _take(self, reply: Reply) -> None:
        if reply.stale:
            self._board.superseded("the operator knows a newer attempt of this job")
            return
        if reply.answer is None:
            if not self._told:
                log.warning("the operator takes no reports (%s); training goes on", reply.problem)
                self._told = True
            return
        self._told = False
        self._interval = reply.answer.interval_seconds
        self._board.answered(reply.answer.save)


def _retry_after(header: str | None) -> float | None:
    try:
        return None if header is None else _bounded(float(header))
    except ValueError:
        return None  # a date: the two clocks need not agree


def _bounded(seconds: float) -> float:
    return min(LONGEST_WAIT_SECONDS, max(SHORTEST_WAIT_SECONDS, seconds))
