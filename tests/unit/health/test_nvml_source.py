"""NVML through the real binding and a real child process, with a library that can do anything."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from support.health_nvml.build import Scenario, library
from support.health_nvml.watch import PACE, STEADY, Watch

from health.events import Hint, Identity, PciAddress, Quantity, Reading, Xid
from health.nvml_source import Pace

pytestmark = pytest.mark.slow  # each starts the real child process

FIRST, SECOND = PciAddress(0, 0x1B, 0), PciAddress(0, 0x1C, 0)


@pytest.fixture(scope="session")
def recent(tmp_path_factory):
    return library(tmp_path_factory.mktemp("nvml-recent"))


@pytest.fixture(scope="session")
def old(tmp_path_factory):
    return library(tmp_path_factory.mktemp("nvml-old"), "-DWITHOUT_RECENT")


@pytest.fixture
def scenario(tmp_path, recent):
    return Scenario(tmp_path, recent)


async def test_healthy_gpus_give_identities_and_no_symptom(scenario):
    scenario.set(devices=2)
    scenario.gpu(0, links=12, serial="1650012345")
    scenario.gpu(1, links=12)
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(2)
    uuid = "GPU-00000000-0000-0000-0000-00000000000"
    board = ("96.00.74.00.01", "module 3", "580.65.06")
    assert Identity(FIRST, uuid + "0", "1650012345", *board) in watch.events
    assert Identity(SECOND, uuid + "1", "1650000001", *board) in watch.events
    healthy = {None, 0, 1, 3, 0xAA}
    assert {e.value for e in watch.events if isinstance(e, Reading)} <= healthy
    assert watch.source.driver == "580.65.06"
    assert watch.source.counters[(0, 0x1B, 0)]["thermal_margin"] == 40


async def test_only_changes_are_told_and_each_has_its_way_back(scenario):
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(2)
        scenario.gpu(0, remap_pending=1, field__230=4)
        await watch.until(
            Reading(Quantity.REMAP_PENDING, 1, FIRST), Reading(Quantity.RECOVERY_ACTION, 4, FIRST)
        )
        await watch.rounds(2)
        scenario.unset("0.remap_pending", "0.field.230")
        await watch.while_not(
            lambda: watch.about(Quantity.RECOVERY_ACTION, FIRST) == [0, 4, 0], "the way back"
        )
    assert watch.about(Quantity.REMAP_PENDING, FIRST) == [0, 1, 0]


async def test_what_was_told_before_a_restart_is_not_told_again(scenario):
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(1)
    told = {(e.device, e.quantity): e.value for e in watch.events if isinstance(e, Reading)}
    async with Watch(scenario, told=told, pace=STEADY).running() as again:
        await again.rounds(2)
    assert not [e for e in again.events if isinstance(e, Reading)]


async def test_a_driver_that_lacks_the_newer_symbols_is_watched_as_far_as_it_goes(tmp_path, old):
    scenario = Scenario(tmp_path, old)
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
    assert watch.about(Quantity.REPAIR_PENDING, FIRST) == [None]
    assert watch.about(Quantity.FABRIC_STATE, FIRST) == [None]
    assert watch.about(Quantity.RECOVERY_ACTION, FIRST) == [0]
    assert watch.about(Quantity.DEVICE_ERROR, FIRST) == [0]
    assert watch.about(Quantity.MONITOR_ERROR) == [0]


async def test_answers_that_are_not_supported_are_no_symptom(scenario):
    scenario.gpu(0, field__230__error=3, error__remapped_rows=3, error__clocks=4)
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
    assert watch.about(Quantity.RECOVERY_ACTION, FIRST) == [None]
    assert watch.about(Quantity.REMAP_FAILURE, FIRST) == [None]
    assert watch.about(Quantity.DEVICE_ERROR, FIRST) == [0]


async def test_garbage_answers_are_counted_and_never_believed(scenario):
    scenario.gpu(
        0,
        field__230=0xDEAD,
        remap_pending=0xFFFFFFFF,
        remap_failure=7,
        repair_tpc=0xCCCC,
        uuid="GPU-\x1b[31mred",
    )
    async with Watch(scenario).running() as watch:
        await watch.rounds(2)
    for quantity in (
        Quantity.RECOVERY_ACTION,
        Quantity.REMAP_PENDING,
        Quantity.REMAP_FAILURE,
        Quantity.REPAIR_PENDING,
    ):
        assert watch.about(quantity, FIRST) == [None]
    assert watch.source.readings.garbage >= 4
    assert watch.source.boards[0].uuid is None


async def test_a_gpu_that_leaves_the_bus_is_told_and_the_others_go_on(scenario):
    scenario.set(devices=2)
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        scenario.gpu(1, error=15)
        await watch.until(Reading(Quantity.DEVICE_ERROR, 15, SECOND))
        scenario.gpu(0, remap_pending=1)
        await watch.until(Reading(Quantity.REMAP_PENDING, 1, FIRST))
    assert watch.about(Quantity.REMAP_PENDING, SECOND)[-1:] == [0]


async def test_fewer_gpus_than_expected_is_a_symptom(scenario):
    scenario.set(devices=3)
    scenario.gpu(2, error=15)
    async with Watch(scenario, expected=4).running() as watch:
        await watch.until(Reading(Quantity.DEVICES_MISSING, 2))


async def test_links_that_are_all_down_belong_to_a_card_without_a_bridge(scenario):
    scenario.set(devices=2)
    scenario.gpu(0, links=2, link__0=0, link__1=0)
    async with Watch(scenario).running() as watch:
        await watch.rounds(2)
    assert watch.about(Quantity.LINKS_DOWN, FIRST) == [0]
    assert watch.about(Quantity.LINKS_DOWN, SECOND) == [None]


async def test_a_link_that_goes_down_is_counted_against_what_was_there(scenario):
    scenario.gpu(0, links=12)
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        scenario.gpu(0, link__3=0)
        await watch.until(Reading(Quantity.LINKS_DOWN, 1, FIRST))


async def test_clocks_that_slow_down_are_told_when_it_lasts(scenario):
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        scenario.gpu(0, clocks=0x8)
        await watch.rounds(1)
        scenario.gpu(0, clocks=0x1)
        await watch.rounds(4)
        assert watch.about(Quantity.CLOCKS_EVENT_REASONS, FIRST) == [0]
        scenario.gpu(0, clocks=0x40 | 0x4)
        await watch.until(Reading(Quantity.CLOCKS_EVENT_REASONS, 0x40, FIRST))


async def test_an_xid_event_is_told_once_with_its_slice(scenario):
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(1)
        scenario.event(0, 8, 79, 3, 1)
        scenario.event(0, 8, 45)
        await watch.until(Xid(FIRST, 79, gpu_instance=3, compute_instance=1), Xid(FIRST, 45))
        await watch.rounds(2)
    assert sum(isinstance(e, Xid) for e in watch.events) == 2


async def test_an_event_asks_all_gpus_at_once(scenario):
    pace = Pace(poll=1000.0, deadline=20.0, start=20.0)
    async with Watch(scenario, pace=pace).running() as watch:
        await watch.rounds(1)
        scenario.gpu(0, field__230=2)
        scenario.event(0, 0x8000, 2)
        await watch.until(Reading(Quantity.RECOVERY_ACTION, 2, FIRST))
        scenario.event(0, 0x800, 0)
        await watch.while_not(
            lambda: any(isinstance(e, Hint) for e in watch.events), "the hint of the event"
        )


async def test_a_hang_is_a_symptom_of_its_gpu_and_ends_when_nvml_answers(scenario):
    scenario.set(devices=2)
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        scenario.gpu(1, hang__ecc=1)
        await watch.while_not(
            lambda: watch.about(Quantity.MONITOR_HANG, SECOND), "the hang to be told"
        )
        assert watch.source.hanging
        assert not scenario.shutdown.exists()
        scenario.unset("1.hang.ecc")
        await watch.while_not(
            lambda: watch.about(Quantity.MONITOR_HANG, SECOND)[-1] == 0, "the way back"
        )
        assert not watch.source.hanging


async def test_a_child_in_the_middle_of_a_call_is_asked_to_end_and_never_killed(scenario):
    """Killing a client in a call can freeze the GPU: it ends when the call has returned."""
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        scenario.set(hang__fields=1)
        await watch.while_not(lambda: watch.source.stuck >= 1, "the child to be given up")
        child = watch.source._stuck[0]
        assert child.returncode is None
        scenario.unset("hang.fields")
        async with asyncio.timeout(20):
            assert await child.wait() == 0
        assert scenario.shutdown.exists(), "NVML was not shut down in order"


@pytest.mark.slow
async def test_stuck_children_do_not_pile_up(scenario):
    scenario.set(hang__fields=1)
    async with Watch(scenario).running() as watch:
        await watch.while_not(lambda: watch.source.stuck == 3, "three stuck children")
        await asyncio.sleep(4 * (PACE.patience + PACE.deadline))
        assert watch.source.stuck == 3
        scenario.unset("hang.fields")
        await watch.rounds(1)


@pytest.mark.slow
async def test_a_wait_for_events_that_hangs_is_noticed(scenario):
    pace = Pace(poll=0.1, deadline=3.0, start=20.0, patience=0.3, retry=0.05)
    async with Watch(scenario, pace=pace).running() as watch:
        await watch.rounds(1)
        scenario.set(hang__event_wait=1)
        await watch.while_not(lambda: watch.about(Quantity.MONITOR_HANG), "the hang to be told")
        scenario.unset("hang.event_wait")
        await watch.while_not(lambda: watch.about(Quantity.MONITOR_HANG)[-1] == 0, "the way back")


async def test_a_machine_without_a_driver_is_a_fault_of_the_watch_and_not_of_a_gpu(tmp_path):
    scenario = Scenario(tmp_path, tmp_path / "empty")
    async with Watch(scenario).running() as watch:
        await watch.until(Reading(Quantity.MONITOR_ERROR, 12))
    assert [type(e) for e in watch.events] == [Reading]


async def test_a_driver_that_comes_up_later_is_found(scenario):
    scenario.set(error__init=9)
    async with Watch(scenario).running() as watch:
        await watch.until(Reading(Quantity.MONITOR_ERROR, 9))
        scenario.unset("error.init")
        await watch.until(Reading(Quantity.MONITOR_ERROR, 0))


async def test_a_child_that_dies_is_replaced_and_said(scenario):
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        own = os.getpid()
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for child in children:
            if b"nvml_child" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGSEGV)
        await watch.until(Reading(Quantity.MONITOR_ERROR, 999))
        await watch.rounds(1)
        assert watch.about(Quantity.MONITOR_ERROR) == [0, 999, 0]


async def test_an_unknown_error_is_told_only_when_another_child_sees_it_too(scenario):
    scenario.gpu(0, error__ecc=999)
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.until(Reading(Quantity.DEVICE_ERROR, 999, FIRST))
        assert watch.source.restarts == 1
        scenario.unset("0.error.ecc")
        await watch.until(Reading(Quantity.DEVICE_ERROR, 0, FIRST))
