"""The work queue under any order of calls: no key is lost, none is in two workers, none comes early."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.kube_virtual_time import VirtualTimeLoop, end, settle

from clusterops.kube.rate_limit import TokenBucket
from clusterops.kube.workqueue import ShutDown, WorkQueue

KEYS = st.sampled_from("abcde")


class QueueMachine(RuleBasedStateMachine):
    """The model: which keys must still be handed out, and from when on each delayed one may be."""

    def __init__(self):
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue = None
        self.owed = set()  # added and not handed out since
        self.due = {}  # delayed: key -> earliest time
        self.held = set()
        self.getters = []
        self.closed = False
        self.do(self.begin)

    async def begin(self):
        self.queue = WorkQueue(base_delay_seconds=1, jitter=0, retry_bucket=TokenBucket(1000, 1000))

    def do(self, action, *arguments):
        async def step():
            result = action(*arguments)
            if asyncio.iscoroutine(result):
                result = await result
            await settle()
            return result

        result = self.loop.run_until_complete(step())
        if self.queue is not None:
            self.collect()
        return result

    def collect(self):
        """Takes note of what the getters were given."""
        now = self.loop.time()
        for getter in [getter for getter in self.getters if getter.done()]:
            self.getters.remove(getter)
            if getter.cancelled():
                continue
            if isinstance(getter.exception(), ShutDown):
                assert self.closed
                continue
            key = getter.result()
            assert key not in self.held, "a key is in two workers"
            arrived = key in self.due and self.due[key] <= now + 1e-6
            assert key in self.owed or arrived, "a key came that nobody added"
            self.owed.discard(key)
            if arrived:
                del self.due[key]
            self.held.add(key)

    @rule(key=KEYS)
    def add(self, key):
        if not self.closed:
            self.owed.add(key)
        self.do(self.queue.add, key)

    @rule(key=KEYS, delay=st.floats(0.1, 50))
    def add_after(self, key, delay):
        if not self.closed:
            self.expire()
            self.due[key] = min(self.due.get(key, 1e18), self.loop.time() + delay)
        self.do(self.queue.add_after, key, delay)

    @rule(key=KEYS)
    def retry(self, key):
        self.expire()
        failures = self.queue.failures(key)
        if not self.closed:
            delay = min(300.0, 2.0**failures)
            self.due[key] = min(self.due.get(key, 1e18), self.loop.time() + delay)
        self.do(self.queue.retry, key)

    @rule(key=KEYS)
    def forget(self, key):
        self.do(self.queue.forget, key)
        assert self.queue.failures(key) == 0

    @rule()
    def take(self):
        if len(self.getters) < 4:
            self.getters.append(self.loop.create_task(self.queue.get()))
        self.do(settle)

    @precondition(lambda self: self.getters)
    @rule(position=st.integers(0, 3))
    def cancel_a_taker(self, position):
        self.getters[position % len(self.getters)].cancel()
        self.do(settle)

    @precondition(lambda self: self.getters and not self.closed)
    @rule(key=KEYS)
    def add_and_cancel_at_once(self, key):
        self.owed.add(key)

        def both():
            self.queue.add(key)
            self.getters[0].cancel()

        self.do(both)

    @precondition(lambda self: self.held)
    @rule(position=st.integers(0, 4))
    def done(self, position):
        key = sorted(self.held)[position % len(self.held)]
        self.held.remove(key)
        self.do(self.queue.done, key)

    @rule(seconds=st.floats(0.05, 60))
    def time_passes(self, seconds):
        self.do(settle, seconds)
        self.expire()

    @precondition(lambda self: not self.closed)
    @rule()
    def shut_down(self):
        self.expire()
        self.closed = True
        self.due.clear()
        self.do(self.queue.shut_down)

    def expire(self):
        """Delayed keys whose time has come are owed like any other."""
        for key in [key for key, due in self.due.items() if due <= self.loop.time()]:
            del self.due[key]
            self.owed.add(key)

    @invariant()
    def the_counts_agree(self):
        async def state():
            return self.queue.state()

        assert self.loop.run_until_complete(state()).processing == len(self.held)

    def teardown(self):
        """Whatever was asked for comes: everything is worked off."""
        try:
            for getter in self.getters:
                getter.cancel()
            self.do(settle)
            self.do(settle, 400.0)
            self.expire()
            for _ in range(20):
                for key in sorted(self.held):
                    self.held.remove(key)
                    self.do(self.queue.done, key)
                self.getters.append(self.loop.create_task(self.queue.get()))
                self.do(settle)
            assert self.owed == set(), "a key was lost"
        finally:
            end(self.loop)


TestWorkQueue = QueueMachine.TestCase
TestWorkQueue.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
