"""Each thing that NVML is asked for: its value, its older form, and what it may not do."""

import random

import pytest
from support.health_nvml.build import Scenario, library
from support.health_nvml.watch import STEADY, Watch

from health.events import (
    Counters,
    FarEnd,
    Hint,
    LinkEnd,
    Operational,
    PciAddress,
    Quantity,
    Reading,
    Source,
    Watching,
    Wiring,
    Xid,
)
from health.nvml_source import Pace

pytestmark = pytest.mark.slow  # each starts the real child process

FIRST, SECOND = PciAddress(0, 0x1B, 0), PciAddress(0, 0x1C, 0)
AT = (0, 0x1B, 0)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    flags = {"old": ["-DWITHOUT_RECENT"], "recent": [], "newest": ["-DWITH_NEWEST"]}
    return {
        name: library(tmp_path_factory.mktemp(f"nvml-{name}"), *each)
        for name, each in flags.items()
    }


@pytest.fixture
def scenario(tmp_path, libraries):
    return Scenario(tmp_path, libraries["recent"])


async def one_round(scenario: Scenario) -> Watch:
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(1)
    return watch


async def test_every_value_of_a_recent_driver_is_told(scenario):
    scenario.set(devices=1)
    scenario.gpu(
        0, field__230=4, remapped=3, remapped_idle=2, remap_pending=1, remap_failure=1,
        error__retired_pages=0, retired_double=40, retired_single=20, error__retirement_pending=0,
        retirement_pending=1, sram_exceeded=1, repair_tpc=1, unrepairable=1,
        fabric_status=15, fabric_mask=0xA9, fabric_health=2,
    )  # fmt: skip
    watch = await one_round(scenario)
    told = {e.quantity: e.value for e in watch.events if isinstance(e, Reading) and e.device}
    assert told == {
        Quantity.DEVICE_ERROR: 0,
        Quantity.RECOVERY_ACTION: 4,
        Quantity.REMAPPED_UNCORRECTABLE: 5,
        Quantity.REMAP_PENDING: 1,
        Quantity.REMAP_FAILURE: 1,
        Quantity.RETIRED_PAGES: 60,
        Quantity.RETIREMENT_PENDING: 1,
        Quantity.SRAM_THRESHOLD_EXCEEDED: 1,
        Quantity.REPAIR_PENDING: 1,
        Quantity.MEMORY_UNREPAIRABLE: 1,
        Quantity.CLOCKS_EVENT_REASONS: 0,
        Quantity.FABRIC_STATE: 3,
        Quantity.FABRIC_STATUS: 15,
        Quantity.FABRIC_HEALTH_MASK: 0xA9,
        Quantity.FABRIC_HEALTH: 2,
        Quantity.PCIE_LANES_LOST: 0,
        Quantity.PCIE_GENERATIONS_LOST: 0,
        Quantity.LINKS_DOWN: None,
    }


@pytest.mark.parametrize("kind", ["recent", "newest"])
async def test_the_newest_form_of_the_fabric_that_the_driver_has_is_asked(
    tmp_path, libraries, kind
):
    scenario = Scenario(tmp_path, libraries[kind])
    scenario.set(devices=2)
    scenario.gpu(0, fabric_mask=0x1AA, fabric_health=3)
    scenario.gpu(1, fabric_mask=0x1A6, fabric_version=2)
    watch = await one_round(scenario)
    assert watch.about(Quantity.FABRIC_HEALTH, FIRST) == [3]
    assert watch.about(Quantity.FABRIC_HEALTH_MASK, SECOND) == [0x1A6]
    assert watch.about(Quantity.FABRIC_HEALTH, SECOND) == ([None] if kind == "recent" else [1])


async def test_a_fabric_that_is_not_there_has_no_health(scenario):
    scenario.gpu(0, fabric_state=0, fabric_mask=0x55)
    watch = await one_round(scenario)
    assert watch.about(Quantity.FABRIC_STATE, FIRST) == [0]
    assert watch.about(Quantity.FABRIC_HEALTH_MASK, FIRST) == [None]


async def test_older_forms_answer_where_the_newer_are_missing(tmp_path, libraries):
    scenario = Scenario(tmp_path, libraries["old"])
    scenario.gpu(
        0, field__230__error=3, field__226=1, field__227=0, retired_double=70, fabric_state=3,
        remapped=513, remap_pending=1,
    )  # fmt: skip
    watch = await one_round(scenario)
    assert watch.about(Quantity.RECOVERY_ACTION, FIRST) == [1]
    assert watch.about(Quantity.RETIRED_PAGES, FIRST) == [70]
    assert watch.about(Quantity.FABRIC_STATE, FIRST) == [3]
    assert watch.about(Quantity.REMAPPED_UNCORRECTABLE, FIRST) == [513]
    assert watch.about(Quantity.CLOCKS_EVENT_REASONS, FIRST) == [0]
    assert watch.about(Quantity.DEVICE_ERROR, FIRST) == [0]


async def test_a_drain_flag_of_an_older_driver_is_a_drain_and_a_reset(tmp_path, libraries):
    scenario = Scenario(tmp_path, libraries["old"])
    scenario.gpu(0, field__230__error=3, field__226=0, field__227=1)
    assert (await one_round(scenario)).about(Quantity.RECOVERY_ACTION, FIRST) == [4]


async def test_a_bus_that_lost_lanes_or_speed_is_told_when_it_lasts_and_the_gpu_works(scenario):
    scenario.set(devices=2)
    scenario.gpu(0, pcie_width=8, pcie_generation=3, clocks=0)
    scenario.gpu(1, pcie_width=16, pcie_generation=1, clocks=1)
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.until(Reading(Quantity.PCIE_LANES_LOST, 8, FIRST))
        await watch.until(Reading(Quantity.PCIE_GENERATIONS_LOST, 2, FIRST))
        scenario.gpu(0, pcie_width=16, pcie_generation=5)
        await watch.until(Reading(Quantity.PCIE_LANES_LOST, 0, FIRST))
    assert watch.about(Quantity.PCIE_GENERATIONS_LOST, SECOND) == [0], "idle GPUs slow the bus down"


async def test_counters_of_links_are_summed_and_those_of_the_bus_and_memory_told(scenario):
    scenario.gpu(
        0, links=4, link__2=0, field__161=2, field__161__3=10, field__214=1, field__221=7,
        field__180=5, ecc_uncorrected=9, dram_errors=8, sram_errors=1, banks_none=2, pcie_replay=3,
    )  # fmt: skip
    watch = await one_round(scenario)
    counters = watch.source.counters[AT]
    expected = {
        "nvlink_replays": 16, "nvlink_recovery_failures": 4, "nvlink_symbol_errors": 28,
        "pcie_fatal_errors": 5, "ecc_uncorrected_aggregate": 9, "dram_uncorrected": 8,
        "sram_uncorrected": 1, "banks_no_spare": 2, "pcie_replays": 3,
    }  # fmt: skip
    assert {name: counters.get(name) for name in expected} == expected


async def test_a_driver_without_fields_of_links_is_asked_link_by_link(scenario):
    scenario.gpu(0, links=3, link_errors__0=2, link_errors__4=1)
    counters = (await one_round(scenario)).source.counters[AT]
    assert (counters["nvlink_replays"], counters["nvlink_ecc_errors"]) == (6, 3)


async def test_how_gpus_hang_together_is_told_once_from_their_links(scenario):
    scenario.set(devices=2)
    scenario.gpu(0, links=3, link__1__type=0, link__1__bus=0x1C, link__2=0, architecture=7, mig=1)
    scenario.gpu(1, error__link_type=3, error__link_end=3, links=1)
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(2)
    ends = (LinkEnd(0, FarEnd.SWITCH, PciAddress(0, 5, 0)), LinkEnd(1, FarEnd.GPU, SECOND))
    assert [e for e in watch.events if isinstance(e, Wiring)] == [
        Wiring(FIRST, 7, True, ends),
        Wiring(SECOND, 9, False, (LinkEnd(0, FarEnd.OTHER),)),
    ]


async def test_the_place_of_a_board_is_what_the_chassis_says(scenario):
    scenario.gpu(0, chassis="1821024400120", chassis_slot=200, tray=2, module=1)
    watch = await one_round(scenario)
    assert watch.source.boards[0].slot == "chassis 1821024400120, slot 200, tray 2, module 1"


async def test_counters_are_kept_before_a_fault_and_after_it(scenario):
    pace = Pace(poll=0.1, deadline=20.0, start=20.0)
    async with Watch(scenario, pace=pace).running() as watch:
        await watch.rounds(2)
        scenario.gpu(0, pcie_replay=5)
        await watch.rounds(2)
        scenario.gpu(0, pcie_replay=9)
        scenario.event(0, 8, 79)
        await watch.while_not(
            lambda: sum(isinstance(e, Counters) for e in watch.events) == 2, "counters of the fault"
        )
        await watch.rounds(2)
    kept = [e.values["pcie_replays"] for e in watch.events if isinstance(e, Counters)]
    assert kept == [0, 9], "growth alone is kept once an hour, growth with a fault at once"


async def test_events_with_traits_are_told_with_their_xid(tmp_path, libraries):
    scenario = Scenario(tmp_path, libraries["newest"])
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(1)
        scenario.event(0, 8, 95)
        scenario.traits(0, 95, severity=40, attributes=1 << 2 | 1 << 0, trace=77)
        scenario.traits(0, 0, severity=30, attributes=0, group=1 << 2)
        hint = Hint("operational_recoverable", FIRST, "memory of the GPU reports event 17")
        await watch.until(Xid(FIRST, 95), hint)
        await watch.while_not(lambda: any(watch.operational), "the traits")
        scenario.event(0, 8, 13)
        await watch.until(Xid(FIRST, 13))
        await watch.rounds(1)
    told = list(zip(watch.events, watch.operational, strict=True))
    xids = [(event.code, beside) for event, beside in told if isinstance(event, Xid)]
    # That one telling is left of the two is a matter of moments, and of test_nvml_events.py.
    traits = Operational(trace=77, propagated=True, uncontained=True)
    assert [each for each in xids if each[1] is not None] == [(95, traits)]
    assert {code for code, _ in xids} == {95, 13}
    assert watch.operational[watch.events.index(hint)].simulated


async def test_5_a_driver_version_that_could_not_be_read_is_asked_for_again(scenario):
    scenario.set(error__driver_version=999)
    async with Watch(scenario, pace=STEADY).running() as watch:
        await watch.rounds(1)
        assert watch.source.driver is None
        scenario.unset("error.driver_version")
        await watch.while_not(lambda: watch.source.driver == "580.65.06", "the driver's version")
        assert watch.source.restarts == 0


async def test_10_links_end_where_nvml_says_and_not_at_the_most_there_can_be(scenario):
    """The A100 has 12 of 18: the thirteenth is not supported, which is the end and no fault."""
    scenario.gpu(0, links=12)
    watch = await one_round(scenario)
    assert watch.about(Quantity.LINKS_DOWN, FIRST) == [0]
    assert watch.about(Quantity.DEVICE_ERROR, FIRST) == [0]


async def test_a_link_that_was_down_before_a_restart_is_still_missed(scenario):
    scenario.set(devices=2)
    scenario.gpu(0, links=12, link__3=0)
    told = {(FIRST, Quantity.LINKS_DOWN): 1}
    async with Watch(scenario, told=told, pace=STEADY).running() as watch:
        await watch.rounds(2)
        assert watch.about(Quantity.LINKS_DOWN, FIRST) == []
        scenario.gpu(0, link__3=1)
        await watch.until(Reading(Quantity.LINKS_DOWN, 0, FIRST))


async def test_a_gpu_with_fewer_links_than_its_siblings_misses_them_from_the_start(scenario):
    scenario.set(devices=2)
    scenario.gpu(0, links=12)
    scenario.gpu(1, links=12, link__7=0)
    watch = await one_round(scenario)
    assert watch.about(Quantity.LINKS_DOWN, SECOND) == [1]


async def test_whether_xids_are_heard_is_told_and_told_back(scenario):
    scenario.set(devices=2)
    scenario.gpu(1, event_types=0x3)
    watch = await one_round(scenario)
    assert not [e for e in watch.events if isinstance(e, Watching)], (
        "the second GPU's are not heard"
    )
    scenario.gpu(1, event_types=0xFE0B)
    async with Watch(scenario).running() as watch:
        await watch.rounds(1)
        scenario.set(hang__fields=1)
        await watch.until(Watching(Source.NVML, watches=False))
        scenario.unset("hang.fields")
    told = [e.watches for e in watch.events if isinstance(e, Watching)]
    assert told[:2] == [True, False]


KEYS = [
    *(f"field.{n}" for n in (161, 163, 173, 180, 206, 214, 221, 226, 227, 230, 231)),
    *(f"field.{n}.type" for n in (161, 214, 230)),
    "remapped", "remapped_idle", "remap_pending", "remap_failure", "retired_double",
    "retired_single", "retirement_pending", "sram_exceeded", "repair_channel", "repair_tpc",
    "unrepairable", "clocks", "fabric_state", "fabric_status", "fabric_mask", "fabric_health",
    "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max", "ecc_corrected",
    "ecc_uncorrected", "dram_errors", "links", "link_errors.0", "thermal_margin", "banks_max",
    "pcie_replay", "link.0", "error.ecc", "error.fields", "error.fabric",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["old", "recent", "newest"])
async def test_whatever_is_answered_the_child_goes_on(tmp_path, libraries, kind):
    """Garbage by seed, in every answer there is: no child dies, and all of it is told or counted."""
    chance = random.Random(3)
    scenario = Scenario(tmp_path, libraries[kind])
    scenario.set(devices=2)
    scenario.gpu(0, error__retired_pages=0, error__retirement_pending=0)
    pace = Pace(poll=0.01, deadline=20.0, start=20.0)
    async with Watch(scenario, pace=pace).running() as watch:
        await watch.rounds(1)
        for _ in range(20):
            for key in chance.sample(KEYS, 12):
                value = chance.choice([0, 1, -1, 7, 0xFFFFFFFF, 1 << 63, chance.getrandbits(64)])
                # An unknown error has another child asked, which is no death.
                value = chance.choice([0, 3, 15, 1234]) if key.startswith("error") else value
                scenario.gpu(0, **{key.replace(".", "__"): value})
            await watch.rounds(1)
        assert watch.source.restarts == 0
        assert watch.source.readings.garbage > 0
        assert watch.about(Quantity.MONITOR_ERROR) == [0]
