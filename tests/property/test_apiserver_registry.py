"""The API against a model of itself: whatever clients do, in whatever order, across restarts.

The model is a dict of objects. After every step the server must agree with it on what is there,
revisions must only grow, and a watch must have told every change once and in order.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.apiserver_world import WIDGETS, Watch, World, running_world, widget

NAMES = st.sampled_from(["a", "b", "c"])
SIZES = st.integers(0, 3)
FINALIZER = "example.io/hold"


class RegistryMachine(RuleBasedStateMachine):
    """Drives one server; every rule is one request of a client."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[str, dict[str, Any]] = {}  # name -> size, phase, held, deleting
        self.seen: dict[str, str] = {}  # what the watch says is there: name -> revision
        self.known: dict[str, dict[str, Any]] = {}  # the last whole object a client has read
        self.newest = 0
        self._start()

    def _run(self, work: Any) -> Any:
        return self.runner.run(asyncio.wait_for(work, 30))

    def _start(self) -> None:
        self.context = running_world(Path(self.folder.name) / "state")
        self.world: World = self.runner.run(self.context.__aenter__())
        self.watch: Watch = self._run(self.world.watch(f"{WIDGETS}?watch=1"))
        self.seen = {}

    def _stop(self) -> None:
        self._run(self.context.__aexit__(None, None, None))

    def teardown(self) -> None:
        self._stop()
        self.runner.close()
        self.folder.cleanup()

    def _send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._run(self.world.request(method, f"{WIDGETS}{path}", body, sent))

    def _patch(self, name: str, body: Any, subresource: str = "") -> Any:
        return self._send(
            "PATCH", f"/{name}{subresource}", body, content_type="application/merge-patch+json"
        )

    def _wrote(self, answer: Any, *, changed: bool = True) -> None:
        revision = int(answer.json["metadata"]["resourceVersion"])
        assert not changed or revision > self.newest
        self.newest = max(self.newest, revision)

    @rule(name=NAMES, size=SIZES, held=st.booleans())
    def create(self, name: str, size: int, held: bool) -> None:
        metadata = {"finalizers": [FINALIZER]} if held else {}
        answer = self._send("POST", "", widget(name, size, **metadata))
        if name in self.model:
            assert answer.status == 409
            return
        assert answer.status == 201
        self._wrote(answer)
        self.model[name] = {"size": size, "phase": None, "held": held, "deleting": False}

    @rule(name=NAMES, size=SIZES)
    def change_specification(self, name: str, size: int) -> None:
        answer = self._patch(name, {"spec": {"size": size}, "status": {"phase": "ignored"}})
        if name not in self.model:
            assert answer.status == 404
            return
        assert answer.status == 200
        self._wrote(answer, changed=self.model[name]["size"] != size)
        self.model[name]["size"] = size

    @rule(name=NAMES, phase=st.sampled_from(["Up", "Down"]))
    def report_status(self, name: str, phase: str) -> None:
        answer = self._patch(name, {"spec": {"size": 99}, "status": {"phase": phase}}, "/status")
        if name not in self.model:
            assert answer.status == 404
            return
        self._wrote(answer, changed=self.model[name]["phase"] != phase)
        self.model[name]["phase"] = phase

    @rule(name=NAMES)
    def read(self, name: str) -> None:
        answer = self._send("GET", f"/{name}")
        assert answer.status == (200 if name in self.model else 404)
        if answer.status == 200:
            self.known[name] = answer.json

    @rule(name=NAMES, size=SIZES)
    def replace_what_was_read(self, name: str, size: int) -> None:
        if name not in self.known:
            return
        obj = {**self.known[name], "spec": {**self.known[name]["spec"], "size": size}}
        current = self._send("GET", f"/{name}")
        answer = self._send("PUT", f"/{name}", obj)
        if current.status == 404:
            assert answer.status == 404
            return
        fresh = current.json["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
        assert answer.status == (200 if fresh else 409)
        if fresh:
            self._wrote(answer, changed=self.model[name]["size"] != size)
            self.model[name]["size"] = size

    @rule(name=NAMES, body=st.sampled_from([{"size": -1}, {"size": "big"}, {"size": None}]))
    def change_to_something_invalid(self, name: str, body: dict[str, Any]) -> None:
        answer = self._patch(name, {"spec": body})
        assert answer.status == (422 if name in self.model else 404)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        answer = self._send("DELETE", f"/{name}")
        assert answer.status == (200 if name in self.model else 404)
        if name in self.model and self.model[name]["held"]:
            self.model[name]["deleting"] = True
        else:
            self.model.pop(name, None)

    @rule(name=NAMES)
    def let_go(self, name: str) -> None:
        answer = self._patch(name, {"metadata": {"finalizers": None}})
        assert answer.status == (200 if name in self.model else 404)
        if name in self.model:
            self.model[name]["held"] = False
            if self.model[name]["deleting"]:
                del self.model[name]

    @rule()
    def delete_all(self) -> None:
        assert self._send("DELETE", "").status == 200
        self.model = {
            name: {**state, "deleting": True} for name, state in self.model.items() if state["held"]
        }

    @precondition(lambda self: self.model)
    @rule()
    def restart(self) -> None:
        self._stop()
        self._start()

    @invariant()
    def the_list_is_the_model(self) -> None:
        listed = self._send("GET", "").json
        found = {
            item["metadata"]["name"]: {
                "size": item["spec"]["size"],
                "phase": item.get("status", {}).get("phase"),
                "held": bool(item["metadata"].get("finalizers")),
                "deleting": "deletionTimestamp" in item["metadata"],
            }
            for item in listed["items"]
        }
        assert found == self.model
        revision = int(listed["metadata"]["resourceVersion"])
        assert revision >= self.newest
        self.newest = revision

    @invariant()
    def the_watch_has_told_every_change_once(self) -> None:
        listed = self._send("GET", "").json["items"]
        there = {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in listed}
        while self.seen != there or not self.watch.silent:
            event = self._run(self.watch.next())
            metadata = event["object"]["metadata"]
            name, revision = metadata["name"], metadata["resourceVersion"]
            assert (name in self.seen) == (event["type"] != "ADDED")
            assert int(revision) > int(self.seen.get(name, 0))
            if event["type"] == "DELETED":
                del self.seen[name]
            else:
                self.seen[name] = revision


RegistryMachine.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestRegistry = RegistryMachine.TestCase
