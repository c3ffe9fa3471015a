"""Real lines of kernel logs: the right action for each, alone and in context."""

import json

import pytest
from support import health_golden as golden

from health import shipped
from health.actions import Action
from health.catalogue.rows import Cause

EXAMPLES = golden.examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: str(each.id))
def test_kind_code_and_device_of_every_line(example: golden.Example) -> None:
    found = golden.alone(example)
    assert (found.kind, found.code, found.gpu) == (example.kind, example.code, example.gpu)


def test_a_line_alone_gets_the_right_action_nine_times_out_of_ten() -> None:
    hits = sum(golden.alone(each).action == each.action for each in EXAMPLES)
    assert hits / len(EXAMPLES) >= 0.90


def test_with_its_context_nineteen_times_out_of_twenty() -> None:
    around = golden.contexts()
    hits = sum(golden.in_context(each, around[str(each.id)]) == each.action for each in EXAMPLES)
    assert hits / len(EXAMPLES) >= 0.95


def test_no_fault_of_the_application_gets_a_reboot_or_a_ticket() -> None:
    catalogue = shipped.catalogue().xids
    for example in EXAMPLES:
        known = catalogue.get(example.code or 0)
        if known is not None and known.cause is Cause.APPLICATION:
            assert golden.alone(example).action.severity <= Action.RESET_GPU.severity


def test_the_contexts_say_what_happened_and_not_what_to_do() -> None:
    text = json.dumps(golden.contexts())
    assert not [
        action.value for action in Action if action.value != "none" and action.value in text
    ]
    keys = {
        key
        for context in golden.contexts().values()
        for part in context.values()
        for each in part
        for key in each
    }
    assert keys <= {"at", "line", "every", "times", "job", "how", "gpus"}


def test_the_kept_confusion_matrix_is_the_one_of_today() -> None:
    kept = (golden.FOLDER / "confusion.txt").read_text(encoding="utf-8")
    assert golden.report() == kept
