"""YAML text to JSON values that remember where they stood.

Reads what `kubectl` reads, with the same meaning of plain words, and nothing more: no tags that
build objects, no repeated keys, no anchors that multiply, bounded size and depth. Text comes in;
nothing here opens a file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from clusterops.api.text import printable, shortened
from clusterops.api.wire import Path

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_ALIASES = 100
MAX_VALUES = 100_000

_PLAIN = "plain"  # a scalar without quotes and without a tag: its text says its type
_CORE = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_TRUE = re.compile(r"(?:y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON)\Z")
_FALSE = re.compile(r"(?:n|N|no|No|NO|false|False|FALSE|off|Off|OFF)\Z")
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")


class _YamlMark(Protocol):
    """PyYAML's own place, both from 0."""

    line: int
    column: int


class Mark(NamedTuple):
    """A place in the text, both from 1."""

    line: int
    column: int


class Flaw(NamedTuple):
    """Something that is wrong with the text itself. `path` is where in the document, if known."""

    mark: Mark
    message: str
    path: Path = ()


@dataclass
class Document:
    """One YAML document: its value, and the place of each key and list item in it."""

    value: Any = None
    marks: dict[Path, Mark] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)

    def mark_of(self, path: Path) -> Mark:
        """Where a value stands, or the nearest thing above it that stands anywhere."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                return self.marks[path[:length]]
        return Mark(1, 1)


class _TooMuch(Exception):
    """A limit was passed; ends the reading of the text."""

    def __init__(self, node: _YamlMark | None, message: str) -> None:
        super().__init__(message)
        self.mark = _mark(node)
        self.message = message


class _NodeReader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML down to nodes, with a limit on depth and aliases, and no meaning given to scalars."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}
        self._depth = 0
        self._aliases = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call] # untyped in the stubs
        if isinstance(event, yaml.events.AliasEvent):
            self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise _TooMuch(event.start_mark, f"more than {MAX_ALIASES} aliases")
        if self._depth >= MAX_DEPTH:
            raise _TooMuch(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def documents(text: str) -> list[Document]:
    """Every document of the text that is not empty.

    What is wrong with the text is in the documents' `flaws`; after broken syntax, or past a limit,
    the last document holds the flaw and reading ends there.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return [Document(flaws=[Flaw(Mark(1, 1), f"larger than {MAX_BYTES >> 20} MiB")])]
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may be indented with tabs, and holds none in its text
    found: list[Document] = []
    try:
        reader = _NodeReader(text)
        while reader.check_node():
            node = reader.get_node()
            if node is not None and not (isinstance(node, ScalarNode) and node.value == ""):
                found.append(_Builder().document(node))
    except _TooMuch as limit:
        found.append(Document(flaws=[Flaw(limit.mark, limit.message)]))
    except yaml.MarkedYAMLError as error:
        found.append(Document(flaws=[Flaw(_mark(error.problem_mark), _syntax(error))]))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        unreadable = (
            f"the character {printable(chr(_code(error.character)))} is not allowed in YAML"
        )
        found.append(Document(flaws=[Flaw(Mark(line, 1), unreadable)]))
    return found


class _Builder:
    """Builds one document's value; keeps the place of everything in it."""

    def __init__(self) -> None:
        self._document = Document()
        self._values = 0

    def document(self, node: Node) -> Document:
        self._document.marks[()] = _mark(node.start_mark)
        self._document.value = self._value(node, (), 0)
        return self._document

    def _value(self, node: Node, path: Path, depth: int) -> Any:
        self._values += 1
        if depth > MAX_DEPTH:
            raise _TooMuch(node.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        if self._values > MAX_VALUES:
            raise _TooMuch(node.start_mark, f"more than {MAX_VALUES} values, aliases repeated")
        self._document.marks.setdefault(path, _mark(node.start_mark))
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, SequenceNode):
            self._check_tag(node, path, ("seq",))
            return [
                self._value(item, (*path, position), depth + 1)
                for position, item in enumerate(node.value)
            ]
        self._check_tag(node, path, ("map",))
        assert isinstance(node, MappingNode)
        return self._mapping(node, path, depth)

    def _mapping(self, node: MappingNode, path: Path, depth: int) -> dict[str, Any]:
        built: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._flaw(key_node, path, "a key must be text")
                continue
            key = self._whole_text(key_node, path)
            if key == "<<" and key_node.tag == _PLAIN:
                for source in self._merged(value_node, path, depth):
                    merged = {**source, **merged}
                continue
            place = (*path, key)
            if key in built:
                first = self._document.marks[place]
                self._flaw(key_node, place, f"is already in line {first.line}")
                continue
            self._document.marks[place] = _mark(key_node.start_mark)
            built[key] = self._value(value_node, place, depth + 1)
        return {**merged, **built}

    def _merged(self, node: Node, path: Path, depth: int) -> Iterator[dict[str, Any]]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in sources:
            if isinstance(source, MappingNode):
                yield self._value(source, path, depth + 1)
            else:
                self._flaw(source, path, "<< must name objects")

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text = self._whole_text(node, path)
        if node.tag == _PLAIN:
            if _NOT_JSON.match(text):
                self._flaw(node, path, f"{text} has no place in JSON")
                return None
            return _plain(text)
        kind = node.tag.removeprefix(_CORE)
        self._check_tag(node, path, ("str", "int", "float", "bool", "null", "timestamp"))
        if kind in ("int", "float", "bool", "null"):
            value = _plain(text)
            wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}[kind]
            if not isinstance(value, wanted):  # type: ignore[arg-type] # a tuple or a type
                self._flaw(node, path, f"{shortened(text, 40)} is no {kind}")
            return value
        return text

    def _whole_text(self, node: ScalarNode, path: Path) -> str:
        """The text with characters that JSON writes as two escapes put together."""
        text: str = node.value
        if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._flaw(node, path, "an escape stands for half a character")
            return printable(text)

    def _check_tag(self, node: Node, path: Path, allowed: tuple[str, ...]) -> None:
        if node.tag not in ("!", *(_CORE + kind for kind in allowed)):
            self._flaw(node, path, f"the tag {shortened(node.tag, 60)} is not allowed")

    def _flaw(self, node: Node, path: Path, message: str) -> None:
        self._document.flaws.append(Flaw(_mark(node.start_mark), message, path))


def _plain(text: str) -> Any:
    """The meaning of a scalar without quotes."""
    if _NULL.match(text):
        return None
    if _TRUE.match(text) and text not in "yY":
        return True
    if _FALSE.match(text) and text not in "nN":
        return False
    if _INTEGER.match(text):
        return _integer(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text)
    return text


def _integer(text: str) -> int:
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if digits[:2] in ("0x", "0b", "0o"):
        return sign * int(digits, 0)
    # A leading zero means octal, as file modes are written: 0644.
    return sign * (int(digits, 8) if len(digits) > 1 and digits[0] == "0" else int(digits))


def _syntax(error: yaml.MarkedYAMLError) -> str:
    context = f" {error.context}" if error.context else ""
    return f"not YAML: {printable(error.problem or 'broken')}{printable(context)}"


def _mark(mark: _YamlMark | None) -> Mark:
    return Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)


def _code(character: str | int) -> int:
    return character if isinstance(character, int) else ord(character)
