"""The rules of the style themselves: each finds what it is for, and lets the right thing pass."""

import pytest
from support import tidy_rules as rules
from support.tidy_source import Source
from support.tidy_text import machine_paths, registry_hosts

BROKEN = [
    (rules.file_length, "x = 1\n" * 401),
    (rules.function_length, "def f():\n" + "    x = 1\n" * 61),
    (rules.function_length, "class A:\n    async def f(self):\n" + "        x = 1\n" * 61),
    (rules.module_docstring, "x = 1\n"),
    (rules.public_docstring, "def f():\n    return 1\n"),
    (rules.public_docstring, "class A:\n    x = 1\n"),
    (rules.public_docstring, "class A:\n    'Doc.'\n    def f(self):\n" + "        x = 1\n" * 12),
    (rules.broad_except, "try:\n    f()\nexcept Exception:\n    pass\n"),
    (rules.broad_except, "try:\n    f()\nexcept (ValueError, Exception):\n    pass\n"),
    (rules.broad_except, "try:\n    f()\nexcept BaseException:\n    pass\n"),
    (rules.broad_except, "try:\n    f()\nexcept:\n    pass\n"),
    (rules.banned_names, "class PodManager:\n    pass\n"),
    (rules.banned_names, "def request_handler(): ...\n"),
    (rules.banned_names, "data = 1\n"),
    (rules.banned_names, "def f(data): ...\n"),
    (rules.pickle, "import pickle\n"),
    (rules.pickle, "from cloudpickle import dumps\n"),
    (rules.pickle, "x = torch.load(path)\n"),
    (rules.pickle, "x = torch.load(path, weights_only=False)\n"),
    (rules.zip_strict, "x = zip(a, b)\n"),
    (rules.zip_strict, "x = zip(a, b, strict=False)\n"),
    (rules.sleep, "import time\ntime.sleep(1)\n"),
    (rules.sleep, "from time import sleep\nsleep(1)\n"),
    (rules.wall_clock, "x = time.time()\n"),
    (rules.unfinished, "x = 1  # " + "TO" + "DO later\n"),
    (rules.reasonless_suppression, "x = f()  # type: ignore\n"),
    (rules.reasonless_suppression, "x = f()  # type: ignore[arg-type]\n"),
    (rules.reasonless_suppression, "x = f()  # no" + "qa\n"),
    (rules.reasonless_suppression, "x = f()  # no" + "qa: E501\n"),
    (rules.shared_names, "label = 'clusterops.io/job'\n"),
    (rules.shared_names, "value = f'{x} CLUSTEROPS_HOME'\n"),
    (rules.inner_import, "def f():\n    import json\n"),
    (rules.inner_import, "def f():\n    if x:\n        from a import b\n"),
]
KEPT = [
    (rules.file_length, "x = 1\n" * 400),
    (rules.function_length, "def f():\n" + "    'Doc.'\n" + "    x = 1\n" * 60),
    (rules.module_docstring, '"""Says what it is for."""\n'),
    (rules.public_docstring, "def f():\n    'Doc.'\n    def inner():\n        return 1\n"),
    (rules.public_docstring, "def _f():\n    return 1\n"),
    (rules.public_docstring, "class A:\n    'Doc.'\n    def f(self):\n        return 1\n"),
    (rules.broad_except, "try:\n    f()\nexcept ValueError:\n    pass\n"),
    (rules.broad_except, "try:\n    f()\nexcept BaseException:\n    undo()\n    raise\n"),
    (rules.banned_names, "def apply(field_manager): ...\nclass DataLoader: ...\ncommonly = 1\n"),
    (rules.pickle, "x = torch.load(path, weights_only=True)\n"),
    (rules.zip_strict, "x = zip(a, b, strict=True)\n"),
    (rules.sleep, "await asyncio.sleep(0)\n"),
    (rules.wall_clock, "x = time.monotonic()\n"),
    (rules.unfinished, "x = 1  # the method is done\n"),
    (rules.reasonless_suppression, "x = f()  # type: ignore[arg-type] # the stubs are wrong\n"),
    (rules.reasonless_suppression, "x = f()  # no" + "qa: E501 one long literal\n"),
    (rules.shared_names, "'''About clusterops.io/job and CLUSTEROPS_HOME.'''\n"),
    (rules.inner_import, "def f():\n    import torch\n"),
    (rules.inner_import, "import json\n"),
]


def named(value: object) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("rule", "text"), BROKEN, ids=named)
def test_a_breach_is_found(rule, text: str) -> None:
    assert list(rule(Source("clusterops/room/module.py", text)))


@pytest.mark.parametrize(("rule", "text"), KEPT, ids=named)
def test_what_is_right_passes(rule, text: str) -> None:
    assert list(rule(Source("clusterops/room/module.py", text))) == []


UNORDERED = [
    "for x in {1, 2}: f(x)\n",
    "for x in set(xs): f(x)\n",
    "ys = [f(x) for x in frozenset(xs)]\n",
    "ys = list({x for x in xs})\n",
    "ys = ','.join(set(xs))\n",
    "seen = set()\nfor x in seen: f(x)\n",
    "def f(xs: set[str]):\n    return [x for x in xs]\n",
    "def f(xs: frozenset[str]):\n    return tuple(xs - {1})\n",
    "def f():\n    xs: set[int] = g()\n    return [*xs]\n",
]
ORDERED = [
    "for x in sorted({1, 2}): f(x)\n",
    "for x in sorted(y for y in set(xs)): f(x)\n",
    "ok = any(x > 1 for x in set(xs))\n",
    "n = len(set(xs)) + sum(x for x in {1, 2})\n",
    "def f(xs: list[str]):\n    return [x for x in xs]\n",
]


@pytest.mark.parametrize("text", UNORDERED)
def test_walking_through_a_set_is_found_in_decisions(text: str) -> None:
    assert list(rules.set_iteration(Source("clusterops/core/module.py", text)))
    assert list(rules.set_iteration(Source("clusterops/kube/module.py", text))) == []


@pytest.mark.parametrize("text", ORDERED)
def test_an_order_or_a_result_without_one_passes(text: str) -> None:
    assert list(rules.set_iteration(Source("clusterops/core/module.py", text))) == []


def test_the_clock_is_found_in_decisions_alone() -> None:
    text = "from datetime import datetime\nnow = datetime.now(UTC)\n"
    assert list(rules.wall_clock(Source("clusterops/scheduling/module.py", text)))
    assert list(rules.wall_clock(Source("clusterops/operator/module.py", text))) == []


def test_a_package_that_does_something_is_found() -> None:
    source = Source("clusterops/room/__init__.py", '"""Doc."""\nimport os\n')
    assert list(rules.init_docstring_only(source))
    assert not list(
        rules.init_docstring_only(Source("clusterops/room/__init__.py", '"""Doc."""\n'))
    )


def test_a_banned_module_name_is_found() -> None:
    assert list(rules.banned_names(Source("clusterops/room/utils.py", "")))


def test_the_command_line_may_import_inside_its_commands() -> None:
    assert not list(
        rules.inner_import(Source("clusterops/cli/a.py", "def f():\n    import json\n"))
    )


def test_a_test_needs_no_reason_but_still_a_code() -> None:
    coded = "x = f(1)  # type: ignore[arg-type]\n"
    assert not list(rules.reasonless_suppression(Source("tests/unit/test_a.py", coded)))
    bare = "x = f(1)  # type: ignore\n"
    assert list(rules.reasonless_suppression(Source("tests/unit/test_a.py", bare)))


def test_a_finding_names_the_function_around_it() -> None:
    text = "class A:\n    def f(self):\n        time.sleep(1)\n"
    (finding,) = rules.sleep(Source("clusterops/room/module.py", text))
    assert finding.key == "clusterops/room/module.py::A.f"
    assert finding.line == 3


def test_a_path_of_a_machine_is_found() -> None:
    assert list(machine_paths("README.md", "see /wo" + "rk/main/x"))
    assert list(machine_paths("clusterops/a.py", "x = '/tm" + "p/x'"))
    assert not list(machine_paths("tests/a.py", "x = '/tm" + "p/x'"))
    assert not list(machine_paths("README.md", "see /workspace/x and a/work/b and /checkpoints"))


def test_a_registry_is_found_outside_of_the_lock_file() -> None:
    line = 'url = "https://py' + 'pi.org/simple"'
    assert list(registry_hosts("pyproject.toml", line))
    assert not list(registry_hosts("uv.lock", line))
