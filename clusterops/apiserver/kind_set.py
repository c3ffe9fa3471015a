"""The kinds that are served right now, and the documents that describe them."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from clusterops.apiserver.crd import kind_from_crd
from clusterops.apiserver.definitions import RESOURCE as DEFINITIONS
from clusterops.apiserver.definitions import DefinitionStrategy
from clusterops.apiserver.discovery import Discovery
from clusterops.apiserver.kind import CrdError, Kind
from clusterops.apiserver.openapi import OpenApi
from clusterops.apiserver.ring import DELETED, Event
from clusterops.apiserver.stored import Stored, decode
from clusterops.apiserver.strategy import Strategy, builtin_strategy

_log = logging.getLogger(__name__)


class KindSet:
    """Built-in kinds, and those of the stored CustomResourceDefinitions.

    `now` gives the time as text, for conditions.
    """

    def __init__(self, builtin: Iterable[Kind], now: Callable[[], str]) -> None:
        self._now = now
        self._builtin = tuple(builtin)
        self._defined: dict[str, Kind] = {}  # by name of the definition
        self._terminating: set[str] = set()
        self._generations: dict[str, Any] = {}
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_type: dict[tuple[str, str], Kind] = {}
        self._strategies: dict[str, Strategy] = {}
        self._discovery: Discovery | None = None
        self._openapi: OpenApi | None = None
        self._rebuild()

    def _rebuild(self) -> None:
        kinds = self.served
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self._by_type = {(kind.group, kind.kind): kind for kind in kinds}
        self._strategies = {kind.group_resource: self._make_strategy(kind) for kind in kinds}
        self._discovery = self._openapi = None

    def _make_strategy(self, kind: Kind) -> Strategy:
        if kind.group_resource == DEFINITIONS:
            return DefinitionStrategy(kind, self._now)
        return builtin_strategy(kind)

    @property
    def served(self) -> tuple[Kind, ...]:
        """Every kind, built-in ones first, the others by name."""
        return self._builtin + tuple(self._defined[name] for name in sorted(self._defined))

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind at a path."""
        return self._by_path.get((group, version, plural))

    def of_type(self, group: str, kind: str) -> Kind | None:
        """The kind of an `apiVersion` and `kind`, whatever the version."""
        return self._by_type.get((group, kind))

    def resource(self, name: str) -> Kind | None:
        """The kind of `trainingjobs.clusterops.io`."""
        return next((kind for kind in self.served if kind.group_resource == name), None)

    def strategy(self, kind: Kind) -> Strategy:
        """How objects of a served kind are written."""
        found = self._strategies.get(kind.group_resource)
        return found if found is not None else self._make_strategy(kind)

    @property
    def discovery(self) -> Discovery:
        """Discovery documents of the kinds served now."""
        if self._discovery is None:
            self._discovery = Discovery(self.served)
        return self._discovery

    @property
    def openapi(self) -> OpenApi:
        """OpenAPI documents of the kinds served now."""
        if self._openapi is None:
            self._openapi = OpenApi(self.served)
        return self._openapi

    def load(self, definitions: Iterable[Stored]) -> None:
        """Serve what stored definitions define."""
        for stored in definitions:
            self._define(stored.name, decode(stored.body))
        self._rebuild()

    def observe(self, event: Event) -> None:
        """Follow the definitions as they are written."""
        if event.current.resource != DEFINITIONS:
            return
        name = event.current.name
        if event.type == DELETED:
            self._defined.pop(name, None)
            self._generations.pop(name, None)
            self._terminating.discard(name)
            self._rebuild()
        elif self._define(name, decode(event.current.body)):
            self._rebuild()

    def _define(self, name: str, definition: dict[str, Any]) -> bool:
        """Whether the definition says something new."""
        metadata = definition["metadata"]
        generation = (metadata.get("uid"), metadata.get("generation"))
        if self._generations.get(name) == generation:
            return False
        self._generations[name] = generation
        try:
            self._defined[name] = kind_from_crd(definition)
        except CrdError as error:
            # Stored by a version of this program that checked less; it must not stop the server.
            _log.warning("the stored definition %s is not served: %s", name, error)
            return self._defined.pop(name, None) is not None
        if "deletionTimestamp" in metadata:
            self._terminating.add(name)
        else:
            self._terminating.discard(name)
        return True

    def is_terminating(self, kind: Kind) -> bool:
        """Whether the definition of a kind is being deleted: no new objects then."""
        return kind.crd_name in self._terminating
