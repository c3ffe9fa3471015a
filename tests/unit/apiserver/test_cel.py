"""The subset of CEL: what it computes, and that everything else is refused when compiled."""

import pytest

from clusterops.apiserver.cel import Program
from clusterops.apiserver.cel_syntax import CelError
from clusterops.apiserver.cel_values import EvaluationError
from clusterops.apiserver.structure import build

NODE = build(
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "m": {"type": "integer"},
            "s": {"type": "string"},
            "b": {"type": "boolean"},
            "l": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "integer"}}},
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
)
VALUE = {
    "n": 7,
    "s": "hello",
    "b": True,
    "l": [{"x": 1}, {"x": 2}],
    "free": {"deep": {"a": 1}},
    "map": {"one": 1, "two": 2},
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("self.n == 7", True),
        ("self.n != 7 || self.s == 'hello'", True),
        ("self.n > 3 && self.n <= 7", True),
        ("!self.b", False),
        ("has(self.m)", False),
        ("has(self.n) ? self.n + 1 : 0", 8),
        ("-self.n / 2", -3),
        ("-self.n % 4", -3),
        ("1 + 2 * 3 == 7", True),
        ("(1 + 2) * 3", 9),
        ("self.n in [1, 7]", True),
        ("'one' in self.map", True),
        ("self.map['two']", 2),
        ("self.l[1].x", 2),
        ("size(self.l) == 2 && self.s.size() == 5", True),
        ("self.s.startsWith('he') && self.s.endsWith('lo') && self.s.contains('ell')", True),
        ("self.s.matches('^h.*o$')", True),
        (r"self.s.matches(r'^\w+$')", True),
        ("self.l.all(i, i.x > 0)", True),
        ("self.l.exists(i, i.x == 2)", True),
        ("self.l.exists_one(i, i.x > 0)", False),
        ("self.l.filter(i, i.x > 1).size()", 1),
        ("self.l.map(i, i.x * 2)", [2, 4]),
        ("self.map.all(k, self.map[k] > 0)", True),
        ("self.free.deep.a == 1", True),
        ("true == 1", False),
        ("string(self.n) + 'x'", "7x"),
        ("int('12') + 1", 13),
        ("false && self.m > 1", False),
        ("self.m > 1 && false", False),
        ("self.m > 1 || true", True),
        ('"a\\"b" == \'a"b\'', True),
    ],
)
def test_expression_gives(text, result):
    assert Program(text, NODE)(VALUE) == result


@pytest.mark.parametrize(
    "text",
    ["self.m > 1", "self.l[5].x == 1", "1 / 0 == 1", "self.s > 3", "self.map['three'] == 3",
     "9223372036854775807 + 1 > 0", "self.l.all(i, i.y == 1 || self.m == 1)"],
)  # fmt: skip
def test_a_value_that_cannot_be_worked_on_is_an_evaluation_error(text):
    try:
        program = Program(text, NODE)
    except CelError:
        assert "i.y" in text
        return
    with pytest.raises(EvaluationError):
        program(VALUE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.missing == 1", "undefined field 'missing'"),
        ("self.n.x == 1", "does not support field selection"),
        ("other == 1", "undeclared reference to 'other'"),
        ("self.n ==", "unexpected the end"),
        ("self.n = 1", "unexpected '='"),
        ("self.s.lowerAscii() == 'x'", "lowerAscii() with 0 argument(s) is not supported"),
        ("duration(self.s) > 1", "duration() with 1 argument(s) is not supported"),
        ("self.s.matches('(')", "invalid regular expression"),
        ("has(self)", "invalid argument to has() macro"),
        ("(" * 100 + "1" + ")" * 100, "nested"),
        ("1" + " + 1" * 1000 + " > 0", "more than 150 operators"),
    ],
)
def test_what_is_outside_the_subset_is_refused_when_compiled(text, why):
    with pytest.raises(CelError, match=why.replace("(", r"\(").replace(")", r"\)")):
        Program(text, NODE)


def test_a_deciding_item_outweighs_errors_in_others():
    value = {"l": [{}, {"x": 2}]}
    assert Program("self.l.exists(i, i.x == 2)", NODE)(value) is True
    assert Program("self.l.all(i, i.x == 3)", NODE)(value) is False
    with pytest.raises(EvaluationError):
        Program("self.l.all(i, i.x == 2)", NODE)(value)


def test_old_self_is_noticed():
    assert Program("self.n >= oldSelf.n", NODE).uses_old
    assert not Program("self.n >= 1", NODE).uses_old
    assert Program("self.n >= oldSelf.n", NODE)({"n": 3}, {"n": 2}) is True
