"""Label and field selectors."""

import pytest
from support.apiserver_kinds import builtin, pod, widget_kind

from clusterops.apiserver.causes import Refused
from clusterops.apiserver.selectors import parse_fields, parse_labels

LABELS = {"app": "web", "tier": "one", "example.io/n": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("app=web", True), ("app==web", True), ("app=db", False), ("app!=db", True),
        ("other!=x", True), ("app", True), ("other", False), ("!other", True), ("!app", False),
        ("app in (web, db)", True), ("app in (db)", False), ("app notin (db)", True),
        ("other notin (db)", True), ("app in(web),tier=one", True), ("app=web,tier=two", False),
        ("example.io/n>4", True), ("example.io/n<4", False), ("app>4", False), ("empty=", True),
        ("app=", False), (" app = web , tier ", True), ("empty in (,x)", True),
    ],
)  # fmt: skip
def test_label_selectors(text, matches):
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_selector_selects_everything(text):
    assert parse_labels(text) is None
    assert parse_fields(text, builtin("Pod")) is None


@pytest.mark.parametrize(
    "text", ["=x", "a b", "a in", "a in (b", "a=b,", "a=b=c", ",a", "a=b c", "(a)", "a>x", "-a=1", "a=-"]
)  # fmt: skip
def test_a_malformed_label_selector_is_a_bad_request(text):
    with pytest.raises(Refused) as caught:
        parse_labels(text)
    assert caught.value.status == 400


def test_unlabelled_objects_match_absence_only():
    assert parse_labels("!a").matches(None)
    assert not parse_labels("a").matches(None)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=p", True),
        ("metadata.name!=p", False),
        ("spec.nodeName=", True),
        ("spec.nodeName==n", False),
        ("status.phase!=Failed,status.phase!=Succeeded", True),
        ("spec.hostNetwork=false", True),
    ],
)
def test_field_selectors(text, matches):
    assert parse_fields(text, builtin("Pod")).matches(pod()) is matches


def test_a_name_that_must_match_is_offered_as_a_shortcut():
    selector = parse_fields("metadata.name=a,metadata.namespace=b", builtin("Pod"))
    assert (selector.name, selector.namespace) == ("a", "b")
    assert parse_fields("metadata.name!=a", builtin("Pod")).name is None


def test_events_are_selected_by_what_they_are_about():
    event = {"involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c"}}
    kind = builtin("Event")
    assert parse_fields("involvedObject.name=p,involvedObject.kind=Pod", kind).matches(event)
    assert parse_fields("source=c", kind).matches(event)
    assert not parse_fields("involvedObject.uid=x", kind).matches(event)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "spec.x=1",
            builtin("Pod"),
            'Unable to find "/v1, Resource=pods" that match label selector "", field selector '
            '"spec.x=1": field label not supported: spec.x',
        ),
        ("spec.x=1", widget_kind(), "field label not supported: spec.x"),
        ("nonsense", widget_kind(), "invalid selector: 'nonsense'; can't understand 'nonsense'"),
    ],
)
def test_a_field_that_cannot_be_selected_by_is_a_bad_request(text, kind, message):
    with pytest.raises(Refused) as caught:
        parse_fields(text, kind)
    assert caught.value.message == message
