"""The same failures of others where they are a matter of processes, logs and clusters: which test is whose.

The decisions' part is in test_known_failures.py, numbered alike. A test that is renamed or dropped is
missed here.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
HEALTH, OPERATOR, CORE = "unit/health", "unit/operator", "unit/core"
NUMBERS = range(1, 27)
WHERE = {
    1: [(f"{HEALTH}/test_watch_state.py", "a_fault_printed_before_the_daemon_started_after_a_reboot_is_seen")],
    2: [
        (f"{HEALTH}/test_kmsg.py", "a_ring_overrun_is_survived_and_its_records_counted"),
        (f"{HEALTH}/test_cluster_source.py", "a_remediation_that_failed_or_was_verified_is_a_fact"),
    ],
    3: [
        (f"{HEALTH}/test_nvml_source.py", "a_hang_is_a_symptom_of_its_gpu_and_ends_when_nvml_answers"),
        (f"{HEALTH}/test_watch_state.py", "channels_of_a_job_that_the_cluster_ended_are_expected"),
    ],
    4: [(f"{HEALTH}/test_storms.py", "of_eight_hundred_thousand_equal_lines_a_thousand_are_kept")],
    5: [
        (f"{HEALTH}/test_nvml_values.py", "5_a_driver_version_that_could_not_be_read_is_asked_for_again"),
        (f"{HEALTH}/test_watch_state.py", "another_driver_judges_the_whole_history_anew"),
    ],
    7: [(f"{CORE}/test_remediation_budget.py", "the_share_at_once_counts_gpu_nodes_only")],
    8: [
        (f"{CORE}/test_remediation.py", "a_stale_order_is_not_carried_out"),
        (f"{OPERATOR}/test_nodes.py", "an_operator_killed_at_any_write_ends_up_where_an_unharmed_one_does"),
    ],
    9: [
        (f"{CORE}/test_remediation.py", "a_graver_fault_on_a_node_that_is_out_already_takes_over"),
        (f"{OPERATOR}/test_nodes.py", "a_persons_cordon_and_other_taints_are_kept"),
    ],
    10: [(f"{HEALTH}/test_nvml_values.py", "10_links_end_where_nvml_says_and_not_at_the_most_there_can_be")],
    11: [(f"{HEALTH}/test_nvml_source.py", "only_changes_are_told_and_each_has_its_way_back")],
    12: [(f"{HEALTH}/test_nvml_values.py", "every_value_of_a_recent_driver_is_told")],
    14: [(f"{HEALTH}/test_daemon_process.py", "nvml_is_part_of_the_verdict_and_a_hang_blames_no_hardware")],
    15: [(f"{HEALTH}/test_watch_state.py", "what_was_open_is_still_open_after_a_restart_and_ends_with_a_reboot")],
    18: [(f"{HEALTH}/test_nvml_source.py", "a_child_in_the_middle_of_a_call_is_asked_to_end_and_never_killed")],
    19: [(f"{HEALTH}/test_nvml_source.py", "fewer_gpus_than_expected_is_a_symptom")],
    20: [
        (f"{HEALTH}/test_kmsg.py", "a_ring_overrun_is_survived_and_its_records_counted"),
        (f"{HEALTH}/test_reader.py", "records_reach_the_daemon_and_restarts_lose_and_double_none"),
    ],
    21: [(f"{HEALTH}/test_daemon_process.py", "a_killed_daemon_comes_back_to_the_same_verdict_and_reads_on")],
    23: [
        (f"{HEALTH}/test_nvml_source.py", "a_driver_that_lacks_the_newer_symbols_is_watched_as_far_as_it_goes"),
        (f"{HEALTH}/test_nvml_source.py", "a_machine_without_a_driver_is_a_fault_of_the_watch_and_not_of_a_gpu"),
    ],
    26: [(f"{HEALTH}/test_nvml_values.py", "older_forms_answer_where_the_newer_are_missing")],
}  # fmt: skip


@cache
def names_in(file: Path) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


@pytest.mark.parametrize("number", NUMBERS)
def test_each_known_failure_has_a_test_of_the_decisions_named_after_what_is_right(number: int):
    decisions = names_in(TESTS / HEALTH / "test_known_failures.py")
    assert [name for name in decisions if name.startswith(f"test_{number}_")]


@pytest.mark.parametrize("number", WHERE)
def test_what_is_a_matter_of_processes_is_tested_where_those_are(number: int):
    for file, name in WHERE[number]:
        assert f"test_{name}" in names_in(TESTS / file), f"{number}: {file}"
