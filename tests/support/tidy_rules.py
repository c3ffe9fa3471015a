"""The style of the code as rules over syntax trees. Each rule yields what breaks it.

A rule knows nothing of exceptions; those are named, with a reason, in tests/tidy/exceptions.toml.
"""

import ast
import re
from collections.abc import Callable, Iterator

from support.tidy_source import Finding, Source, docstring_nodes, dotted

MAX_FILE_LINES = 400
MAX_TEST_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
SMALL_METHOD_LINES = 10

BANNED_WORDS = (
    "manager",
    "utils",
    "util",
    "common",
    "misc",
    "helper",
    "helpers",
    "handler",
    "handlers",
)
BANNED_VARIABLES = ("data", "utils", "misc", "helper", "handler")
# The protocol's own words: who owns a field in server-side apply.
PROTOCOL_WORDS = (
    "field_manager",
    "FieldManager",
    "context_manager",
    "ContextManager",
    "exception_handler",
    "signal_handler",
)
PICKLES = ("pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib")
LAZY_PACKAGES = (
    "torch", "kubernetes", "pynvml", "numpy", "safetensors", "transformers", "ray", "rich", "uvloop",
)  # fmt: skip
ORDER_KEEPING = (
    "list",
    "tuple",
    "enumerate",
    "iter",
    "next",
    "zip",
    "map",
    "dict.fromkeys",
    "reversed",
)

Rule = Callable[[Source], Iterator[Finding]]


def file_length(source: Source) -> Iterator[Finding]:
    """A file is short enough to be read in one go."""
    lines = source.text.count("\n")
    limit = MAX_FILE_LINES if source.in_package else MAX_TEST_FILE_LINES
    if lines > limit:
        yield Finding(source.path, 1, f"{lines} lines, more than {limit}", size=lines)


def function_length(source: Source) -> Iterator[Finding]:
    """What a function does fits on a screen; its signature and its docstring do not count."""
    if not source.in_package:
        return
    for name, node in source.named:
        if isinstance(node, ast.ClassDef):
            continue
        first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
        lines = (node.end_lineno or first.lineno) - first.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            message = f"{name} has {lines} lines, more than {MAX_FUNCTION_LINES}"
            yield Finding(source.path, node.lineno, message, name, lines)


def module_docstring(source: Source) -> Iterator[Finding]:
    """Every file says on top what it is for."""
    if not ast.get_docstring(source.tree):
        yield Finding(source.path, 1, "no docstring on top")


def public_docstring(source: Source) -> Iterator[Finding]:
    """What others call says what it does: classes, functions, methods that are not a few lines."""
    if not source.in_package:
        return
    for name, node in source.named:
        parts = name.split(".")
        if any(part.startswith("_") for part in parts) or ast.get_docstring(node):
            continue
        is_class = isinstance(node, ast.ClassDef)
        small = (node.end_lineno or 0) - node.lineno < SMALL_METHOD_LINES
        nested_function = len(parts) > 1 and not is_class and not _in_class(source, parts)
        if nested_function or (len(parts) > 1 and small) or _only_ellipsis(node):
            continue
        if _documented_above(source, parts):
            continue
        yield Finding(source.path, node.lineno, f"{name} has no docstring", name)


def _documented_above(source: Source, parts: list[str]) -> bool:
    """A method of a class whose base in the same file says what it does."""
    nodes = dict(source.named)
    owner = nodes.get(".".join(parts[:-1]))
    if not isinstance(owner, ast.ClassDef):
        return False
    above = [nodes.get(f"{dotted(base)}.{parts[-1]}") for base in owner.bases]
    return any(node is not None and ast.get_docstring(node) for node in above)


def _in_class(source: Source, parts: list[str]) -> bool:
    owner = ".".join(parts[:-1])
    return any(name == owner and isinstance(node, ast.ClassDef) for name, node in source.named)


def _only_ellipsis(node: ast.AST) -> bool:
    body = getattr(node, "body", [])
    return (
        len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    )


def broad_except(source: Source) -> Iterator[Finding]:
    """Errors are caught by name; all of them only at the edge of a process."""
    if not source.in_package:
        return
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = ["everything" if kind is None else dotted(kind) for kind in caught]
        broad = [name for name in names if name in ("everything", "Exception", "BaseException")]
        if broad and not _raises_again(node):
            yield source.finding(node, f"except {broad[0]}")


def _raises_again(node: ast.ExceptHandler) -> bool:
    """Cleaning up and passing the error on hides nothing."""
    last = node.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def banned_names(source: Source) -> Iterator[Finding]:
    """A name says what a thing is; words that fit anything say nothing."""
    if not source.in_package:
        return
    stem = source.path.rsplit("/", 1)[-1].removesuffix(".py")
    for word in _banned_words(stem):
        yield Finding(source.path, 1, f"the module is named {stem}: {word}")
    for name, node in source.named:
        for word in _banned_words(node.name):
            yield Finding(source.path, node.lineno, f"{node.name} says {word}", name)
    for node in source.nodes:
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""
        name = node.arg if isinstance(node, ast.arg) else name
        if name.lower() in BANNED_VARIABLES:
            yield source.finding(node, f"a variable is named {name}")


def _banned_words(name: str) -> list[str]:
    for allowed in PROTOCOL_WORDS:
        name = name.replace(allowed, "")
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return [word for word in words if word.lower() in BANNED_WORDS]


def pickle(source: Source) -> Iterator[Finding]:
    """Nothing that runs code when it is read."""
    for node in source.nodes:
        modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module.split(".")[0] in PICKLES:
                yield source.finding(node, f"imports {module}")
        if isinstance(node, ast.Call) and dotted(node.func) == "torch.load":
            safe = [word for word in node.keywords if word.arg == "weights_only"]
            if not safe or not _is_true(safe[0].value):
                yield source.finding(node, "torch.load without weights_only=True")


def zip_strict(source: Source) -> Iterator[Finding]:
    """Sequences of different lengths are an error, not a shorter loop."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and dotted(node.func) == "zip":
            strict = [word for word in node.keywords if word.arg == "strict"]
            if not strict or not _is_true(strict[0].value):
                yield source.finding(node, "zip without strict=True")


def _is_true(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def sleep(source: Source) -> Iterator[Finding]:
    """Waiting is for a condition, with a deadline."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and dotted(node.func) in ("time.sleep", "sleep"):
            yield source.finding(node, f"calls {dotted(node.func)}")


def wall_clock(source: Source) -> Iterator[Finding]:
    """Durations come from a monotonic clock; decisions are given the time."""
    impure = (
        "datetime.now",
        "datetime.datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
    )
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called == "time.time" or (source.pure and called in impure):
            yield source.finding(node, f"calls {called}")


def unfinished(source: Source) -> Iterator[Finding]:
    """What is not done is not left as a note."""
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    for line, text in source.comments_with(*words):
        if pattern.search(text):
            yield Finding(source.path, line, "an unfinished note", source.subject_at(line))


def reasonless_suppression(source: Source) -> Iterator[Finding]:
    """A check that is switched off says which one, and why."""
    ignore = re.compile(r"type:\s*ignore(?P<code>\[[\w\-, ]+\])?\s*(?:#|--|:)?\s*(?P<reason>.*)")
    noqa = re.compile(
        r"noqa(?P<code>:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?\s*(?:#|--|:)?\s*(?P<reason>.*)"
    )
    for line, text in source.comments_with("type:", "noqa"):
        for word, pattern in (("type: ignore", ignore), ("noqa", noqa)):
            found = re.search(rf"#\s*{pattern.pattern}", text)
            # A test that hands in what the types forbid says so by being that test.
            explained = not source.in_package or (found and len(found["reason"].strip()) >= 3)
            if found and not (found["code"] and explained):
                yield Finding(
                    source.path, line, f"{word} without code and reason", source.subject_at(line)
                )


def set_iteration(source: Source) -> Iterator[Finding]:
    """The order of a set is chance: decisions iterate over nothing unordered."""
    if not source.pure:
        return
    for _, scope in [("", source.tree), *source.named]:
        sets = _set_variables(scope)
        for node in _own_nodes(scope):
            for expression in _iterated(node):
                if _is_set(expression, sets):
                    yield source.finding(expression, "iterates over a set; sort it first")


def _set_variables(scope: ast.AST) -> list[str]:
    found: list[str] = []
    arguments = scope.args if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else None
    if arguments:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        found += [each.arg for each in every if each.annotation and _set_type(each.annotation)]
    for node in _own_nodes(scope):
        if isinstance(node, ast.Assign) and _is_set(node.value, found):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        if isinstance(node, ast.AnnAssign) and _set_type(node.annotation):
            found += [node.target.id] if isinstance(node.target, ast.Name) else []
    return found


def _set_type(annotation: ast.AST) -> bool:
    return ast.unparse(annotation).split("[")[0].rsplit(".", 1)[-1] in (
        "set",
        "frozenset",
        "Set",
        "AbstractSet",
    )


def _is_set(node: ast.AST, variables: list[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and dotted(node.func) in ("set", "frozenset"):
        return True
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
    ):
        return _is_set(node.left, variables) or _is_set(node.right, variables)
    return isinstance(node, ast.Name) and node.id in variables


def _iterated(node: ast.AST) -> list[ast.expr]:
    """What a node walks through in an order that matters."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return [node.iter]
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        return [part.iter for part in node.generators]
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.Call):
        called = dotted(node.func)
        joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        if called in ORDER_KEEPING or joins:
            return [each for each in node.args if not isinstance(each, ast.Starred)]
    return []


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope in source order, without those of functions and classes inside it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        # sorted(x for x in some_set) gives an order: look past it.
        if isinstance(child, ast.Call) and dotted(child.func) in ORDER_FREE:
            continue
        yield child
        yield from _own_nodes(child)


ORDER_FREE = ("sorted", "any", "all", "sum", "len", "min", "max", "set", "frozenset")


def shared_names(source: Source) -> Iterator[Finding]:
    """A label or variable of ours is spelled in one file."""
    if not source.path.startswith("clusterops/") or source.path == "clusterops/api/names.py":
        return
    documentation = docstring_nodes(source)
    for node in source.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in documentation and re.search(
            r"clusterops\.io/|\bCLUSTEROPS_", node.value
        ):
            yield source.finding(node, f"spells {node.value[:60]!r}, which belongs in api/names.py")


def init_docstring_only(source: Source) -> Iterator[Finding]:
    """A package's __init__ says what may live in it and does nothing."""
    if source.path.endswith("/__init__.py") and len(source.tree.body) > 1:
        yield Finding(source.path, source.tree.body[1].lineno, "holds more than a docstring")


def inner_import(source: Source) -> Iterator[Finding]:
    """Imports stand on top, but for what is slow to load and for the command line."""
    if not source.in_package or source.path.startswith("clusterops/cli/"):
        return
    for _, scope in source.named:
        if isinstance(scope, ast.ClassDef):
            continue
        for node in _own_nodes(scope):
            modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                if module.split(".")[0] not in LAZY_PACKAGES:
                    yield source.finding(node, f"imports {module} inside a function")


RULES: tuple[Rule, ...] = (
    file_length,
    function_length,
    module_docstring,
    public_docstring,
    broad_except,
    banned_names,
    pickle,
    zip_strict,
    sleep,
    wall_clock,
    unfinished,
    reasonless_suppression,
    set_iteration,
    shared_names,
    init_docstring_only,
    inner_import,
)
