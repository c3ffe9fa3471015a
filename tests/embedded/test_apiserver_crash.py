"""The server is killed, the disk fills up: no acknowledged write is ever lost."""

import contextlib
import http.client
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded import EmbeddedServer

from clusterops.apiserver.failpoints import (
    COMMIT_AFTER,
    COMMIT_BEFORE,
    COMMIT_BEGUN,
    COMMIT_ROWS,
    ENVIRONMENT,
    PUBLISHED,
    STAGED,
    WRITE_POINTS,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
POINTS_OF_A_WRITE = (STAGED, COMMIT_BEGUN, COMMIT_ROWS, COMMIT_BEFORE, COMMIT_AFTER, PUBLISHED)
MERGE = {"Content-Type": "application/merge-patch+json"}

pytestmark = pytest.mark.embedded


class Writer(threading.Thread):
    """Creates an object and counts it up until the server is gone; remembers what was answered."""

    def __init__(self, server: EmbeddedServer, name: str, limit: int = 100_000) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.object = name
        self.limit = limit
        self.acknowledged = 0  # the highest count that was answered; 0: not even created
        self.attempted = 0
        self.revision = 0
        self.refused: list[int] = []

    def run(self) -> None:
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(self.server.connect()) as connection,
        ):
            while self.attempted < self.limit:
                self.attempted += 1
                content = {"data": {"count": str(self.attempted)}}
                if self.acknowledged == 0:
                    body = {"metadata": {"name": self.object}, **content}
                    answer = self.server.request("POST", CONFIG_MAPS, body, connection=connection)
                else:
                    path = f"{CONFIG_MAPS}/{self.object}"
                    answer = self.server.request(
                        "PATCH", path, content, headers=MERGE, connection=connection
                    )
                if answer.status >= 400:
                    self.refused.append(answer.status)
                    return
                self.acknowledged = self.attempted
                self.revision = int(answer.json["metadata"]["resourceVersion"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    made = EmbeddedServer(tmp_path / "state", crds=[])
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def _check(server: EmbeddedServer, writers: list[Writer]) -> None:
    """Everything acknowledged is there, nothing that was never asked for is, counting goes on."""
    listed = server.request("GET", CONFIG_MAPS).json
    counts = {
        item["metadata"]["name"]: int(item["data"]["count"])
        for item in listed["items"]
        if "data" in item  # those made below have none
    }
    for writer in writers:
        assert writer.acknowledged <= counts.get(writer.object, 0) <= writer.attempted
    newest = max(writer.revision for writer in writers)
    assert int(listed["metadata"]["resourceVersion"]) >= newest
    made = server.request("POST", CONFIG_MAPS, {"metadata": {"generateName": "after-"}})
    assert int(made.json["metadata"]["resourceVersion"]) > newest


def test_kill_under_sixteen_writers_loses_no_acknowledged_write(server: EmbeddedServer) -> None:
    everybody: list[Writer] = []
    for attempt in range(3):
        server.start()
        writers = [Writer(server, f"w{attempt}-{number}") for number in range(16)]
        everybody += writers
        for writer in writers:
            writer.start()
        while sum(writer.acknowledged for writer in writers) < 200 * (attempt + 1):
            writers[0].join(0.01)
            assert all(not writer.refused for writer in writers), server.log()
        server.kill()
        for writer in writers:
            writer.join(30)
        server.start()
        _check(server, everybody)
        server.kill()


def test_the_points_of_a_write_are_all_tried() -> None:
    opening = {point for point in WRITE_POINTS if point.startswith("open.")}
    assert set(POINTS_OF_A_WRITE) | opening == set(WRITE_POINTS)


@pytest.mark.parametrize("point", POINTS_OF_A_WRITE)
@pytest.mark.parametrize("count", [6, 15])
def test_kill_at_each_point_of_a_write(server: EmbeddedServer, point: str, count: int) -> None:
    # The first four writes are the server's own, of the namespaces that it starts with.
    server.environment = {ENVIRONMENT: f"{point}:{count}"}
    server.start()
    writers = [Writer(server, f"w{number}") for number in range(4)]
    for writer in writers:
        writer.start()
    assert server.process is not None
    assert server.process.wait(60) == -9
    for writer in writers:
        writer.join(30)
        assert not writer.refused
    server.environment = {}
    server.start()
    _check(server, writers)
    lost = [w.object for w in writers if w.attempted > w.acknowledged]
    assert lost, "somebody was waiting for an answer when it was killed"


def test_a_full_disk_stops_writes_with_a_reason_and_nothing_else(server: EmbeddedServer) -> None:
    server.start()
    assert server.process is not None
    before = Writer(server, "before", limit=5)
    before.run()
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (600_000, hard))
    large = {"metadata": {"generateName": "large-"}, "data": {"x": "x" * 100_000}}
    stored = []
    while (answer := server.request("POST", CONFIG_MAPS, large)).status == 201:
        stored.append(answer.json["metadata"]["name"])
        assert len(stored) < 50
    assert answer.status == 507
    assert answer.json["reason"] == "InsufficientStorage"
    assert "no space for" in answer.json["message"]
    assert "retry-after" not in answer.headers, "clients would repeat the write"

    found = server.request("GET", CONFIG_MAPS).json["items"]
    names = {item["metadata"]["name"] for item in found}
    assert names == {"before", *stored}
    assert server.request("GET", "/readyz").status == 200

    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    again = server.request("POST", CONFIG_MAPS, large)
    assert again.status == 201
    server.kill()
    server.start()
    found = server.request("GET", CONFIG_MAPS).json["items"]
    names = {item["metadata"]["name"] for item in found}
    assert names == {"before", again.json["metadata"]["name"], *stored}


def test_a_second_server_on_the_same_database_ends_with_the_reason(
    server: EmbeddedServer,
) -> None:
    server.start()
    first, log_so_far = server.process, len(server.log())
    assert first is not None
    server.start(wait=False)
    assert server.process is not None
    assert server.process.wait(30) != 0
    reason = server.log()[log_so_far:]
    assert "in use" in reason
    server.process = first
    assert server.request("GET", "/readyz").status == 200


def test_an_orderly_stop_ends_open_watches_and_exits_cleanly(server: EmbeddedServer) -> None:
    server.start()
    connections = [server.connect() for _ in range(3)]
    answers = []
    for connection in connections:
        headers = {"Authorization": f"Bearer {server.token}"}
        connection.request("GET", f"{CONFIG_MAPS}?watch=true", headers=headers)
        answers.append(connection.getresponse())
    assert server.stop() == 0
    for answer, connection in zip(answers, connections, strict=True):
        assert answer.read() == b""  # ended in order: no IncompleteRead
        connection.close()
    assert "Traceback" not in server.log()
