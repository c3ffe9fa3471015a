"""Group commit: one thread makes all waiting writes durable in one transaction.

While a transaction reaches the disk, further writes queue up and share the next one: a slow fsync
costs latency, not throughput, and the event loop never waits for the disk. The thread hears of all
writes of one turn of the loop at once, and the loop of each batch once: every message between them
makes one wait for the other's hold on the interpreter.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from clusterops.apiserver.database_file import StorageError
from clusterops.apiserver.storage import Change, Storage, StorageFailed

T = TypeVar("T")


class Writer:
    """Owns the storage after `start`. Everything but the thread's loop runs in the event loop.

    `committed(changes)` is called in the loop for each durable batch, in order. After a failure
    `failed(error)` is called once, before which nothing of the same epoch is committed: later
    writes may build on the failed ones. Then writing goes on, unless the error is StorageFailed,
    which refuses everything that follows.
    """

    def __init__(
        self,
        storage: Storage,
        loop: asyncio.AbstractEventLoop,
        committed: Callable[[list[Change]], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        self._storage = storage
        self._loop = loop
        self._committed = committed
        self._failed = failed
        self._gathered: list[Change] = []  # in this turn of the loop
        self._waiting: list[Change] = []
        self._wakeup = threading.Condition()
        self._closing = False
        self._epoch = 0  # of the changes in `_waiting`
        self._failed_epoch = -1
        self._thread = threading.Thread(target=self._run, name="apiserver-writer", daemon=True)
        self.broken: StorageFailed | None = None
        self.batches = 0  # committed transactions, for /metrics
        self.changes = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, change: Change) -> None:
        """Queue one change. Its outcome comes through `committed` or `failed`."""
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(change)

    def _hand_over(self) -> None:
        with self._wakeup:
            gathered, self._gathered = self._gathered, []
            if gathered:
                self._waiting += gathered
                self._wakeup.notify()

    def close(self) -> None:
        """Commit what waits, end the thread, close the storage. Blocks until done."""
        self._hand_over()
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._storage.close()

    def _run(self) -> None:
        while True:
            with self._wakeup:
                while not self._waiting and not self._closing:
                    self._wakeup.wait()
                batch, self._waiting = self._waiting, []
                if not batch:
                    return
                if self._epoch == self._failed_epoch:
                    continue  # built on writes that failed; `_report_failure` answers them too
            try:
                self._storage.commit(batch)
            except StorageError as error:
                with self._wakeup:
                    self._failed_epoch = self._epoch
                self._tell(self._report_failure, error)
            else:
                self.batches += 1
                self.changes += len(batch)
                self._tell(self._committed, batch)

    def _report_failure(self, error: StorageError) -> None:
        with self._wakeup:
            self._waiting.clear()
            self._gathered.clear()
            self._epoch += 1
        if isinstance(error, StorageFailed):
            self.broken = error
        self._failed(error)

    def _tell(self, callback: Callable[[T], None], argument: T) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for an answer
            self._loop.call_soon_threadsafe(callback, argument)
