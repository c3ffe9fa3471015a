"""The reflector under any faults: once they are over, the store equals the server and all was told."""

import asyncio
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.kube_cluster import WIDGETS, FakeCluster, FakeTransport, status_answer
from support.kube_virtual_time import VirtualTimeLoop, end, settle

from clusterops.kube.client import Client
from clusterops.kube.errors import Unreachable
from clusterops.kube.reflector import Reflector, ReflectorTiming
from clusterops.kube.retry import RetryPolicy
from clusterops.kube.store import Store

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
REQUEST_FAULTS = {
    "unreachable": Unreachable("reset"),
    "500": status_answer(500, "InternalError"),
    "429": status_answer(429, "TooManyRequests", retry_after="2"),
    "410": status_answer(410, "Expired"),
    "403": status_answer(403, "Forbidden"),
}
EVENT_FAULTS = ["drop", "double", "hold", "cut", "garbage", "end", "break", "410", "silence"]
RELIST_SECONDS = 900.0


class ReflectorMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.faults = []  # for the next events, in order
        self.held = []  # events that come late
        self.told = {}  # what a reader of the notifications believes
        self.do(self.begin)

    async def begin(self):
        self.cluster = FakeCluster()
        self.transport = FakeTransport(self.cluster)
        self.transport.events = self.distort
        self.store = Store({"odd": lambda value: [value % 2]})
        self.reflector = Reflector(
            Client(self.transport, retry=RetryPolicy(attempts=1)),
            WIDGETS,
            self.store,
            lambda obj: obj["spec"],
            self.changed,
            page_size=2,
            timing=ReflectorTiming(relist=RELIST_SECONDS),
            rng=random.Random(1),
        )
        self.task = asyncio.create_task(self.reflector.run())

    def changed(self, key):
        value = self.store.get(key)
        if value is None:
            self.told.pop(key, None)
        else:
            self.told[key] = value

    def distort(self, event):
        late, self.held = self.held, []
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "hold":
            self.held = [*late, event]
            return []
        sent = {
            "": [event],
            "drop": [],
            "double": [event, event],
            "cut": [b'{"type":"MODIFIED","object":{"meta', None],
            "garbage": [b"\x00not json\n"],
            "end": [None],
            "break": [Unreachable("reset")],
            "410": [{"type": "ERROR", "object": status_answer(410, "Expired").body}],
            "silence": ["silence"],
        }[fault]
        return sent if fault == "silence" else [*sent[:1], *late, *sent[1:]]

    def do(self, action, *arguments):
        async def step():
            result = action(*arguments)
            if asyncio.iscoroutine(result):
                await result
            await settle()

        self.loop.run_until_complete(step())

    @rule(name=NAMES, spec=st.integers(0, 9))
    def put(self, name, spec):
        self.do(lambda: self.cluster.put("widgets", "ns", name, spec=spec))

    @rule(name=NAMES)
    def remove(self, name):
        if ("widgets", "ns", name) in self.cluster.objects:
            self.do(self.cluster.remove, "widgets", "ns", name)

    @rule()
    def something_else_changes(self):
        self.do(lambda: self.cluster.put("gadgets", "", "g", spec=1))

    @rule()
    def compact(self):
        self.do(self.cluster.compact)

    @rule(faults=st.lists(st.sampled_from(EVENT_FAULTS), max_size=3))
    def events_go_wrong(self, faults):
        self.faults.extend(faults)

    @rule(faults=st.lists(st.sampled_from(sorted(REQUEST_FAULTS)), max_size=3))
    def lists_go_wrong(self, faults):
        self.transport.script.extend(REQUEST_FAULTS[fault] for fault in faults)

    @rule(fault=st.sampled_from(sorted(REQUEST_FAULTS)))
    def a_watch_is_refused(self, fault):
        self.transport.stream_script.append(REQUEST_FAULTS[fault])

    @rule(seconds=st.floats(0.1, 200))
    def time_passes(self, seconds):
        self.do(settle, seconds)

    @invariant()
    def notifications_and_store_agree(self):
        assert self.told == dict(self.store.items())
        assert not self.task.done(), "the reflector ended"

    @invariant()
    def indexes_agree_with_the_store(self):
        for odd in (0, 1):
            found = {key for key, value in self.store.items() if value % 2 == odd}
            assert set(self.store.keys_by_index("odd", odd)) == found

    def teardown(self):
        try:
            self.faults.clear()
            self.transport.script.clear()
            self.transport.stream_script.clear()
            # A swallowed event is found at the latest by the next list, a silent watch after 90 s.
            self.do(settle, RELIST_SECONDS * 1.2 + 90 + 60)
            truth = {key: obj["spec"] for key, obj in self.cluster.content("widgets").items()}
            assert dict(self.store.items()) == truth
            self.notifications_and_store_agree()
        finally:
            end(self.loop)


TestReflector = ReflectorMachine.TestCase
TestReflector.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
