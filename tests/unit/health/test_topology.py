"""Which GPUs reset only together: as NVML tells their wiring, never by the product's name."""

import pytest
from support.health_builders import GPUS, event, verdict, xid

from health.actions import Action
from health.events import FarEnd, LinkEnd, PciAddress, Source, Wiring
from health.verdict.topology import Topology, of_wirings

SWITCHES = [PciAddress(0, bus, 0) for bus in (5, 6, 7, 8)]
VOLTA, AMPERE, HOPPER, BLACKWELL = 5, 7, 9, 10


def on_switches(device, generation, *, divided=False):
    links = tuple(LinkEnd(n, FarEnd.SWITCH, SWITCHES[n % 4]) for n in range(12))
    return Wiring(device, generation, divided, links)


def bridged(device, generation, *peers):
    links = tuple(LinkEnd(n, FarEnd.GPU, peer) for n, peer in enumerate(peers))
    return Wiring(device, generation, False, links)


def topology(*wirings: Wiring) -> Topology:
    return of_wirings({each.device: each for each in wirings})


@pytest.mark.parametrize("generation", [AMPERE, HOPPER])
def test_gpus_of_one_board_with_switches_reset_together(generation) -> None:
    found = topology(*(on_switches(gpu, generation) for gpu in GPUS))
    assert found.reset_domain(GPUS[3]) == GPUS


def test_a_later_generation_and_one_that_is_not_known_reset_alone() -> None:
    for generation in (BLACKWELL, None):
        assert topology(*(on_switches(gpu, generation) for gpu in GPUS)) == Topology()


def test_a_divided_gpu_resets_alone_and_takes_nobody_along() -> None:
    found = topology(
        on_switches(GPUS[0], AMPERE, divided=True), *(on_switches(g, AMPERE) for g in GPUS[1:])
    )
    assert found.reset_domain(GPUS[0]) == (GPUS[0],)
    assert found.reset_domain(GPUS[1]) == GPUS[1:]


def test_linked_gpus_without_a_switch_reset_together_up_to_ampere() -> None:
    chain = [
        (GPUS[0], GPUS[1]),
        (GPUS[1], GPUS[0], GPUS[2]),
        (GPUS[2], GPUS[1]),
        (GPUS[3], GPUS[4]),
    ]
    old = topology(*(bridged(first, VOLTA, *peers) for first, *peers in chain))
    assert old.reset_domain(GPUS[0]) == GPUS[:3]
    # A link to a GPU that is not known here ties to nobody.
    assert old.reset_domain(GPUS[3]) == (GPUS[3],)
    new = topology(*(bridged(first, HOPPER, *peers) for first, *peers in chain))
    assert new == Topology()


def test_a_card_without_links_stands_for_itself() -> None:
    assert topology(*(Wiring(gpu, HOPPER, False) for gpu in GPUS)) == Topology()


def test_the_verdict_names_the_domain_that_nvml_told() -> None:
    told = [event(0, on_switches(gpu, HOPPER), source=Source.NVML) for gpu in GPUS]
    (incident,) = verdict(*told, xid(5, 119, "Timeout waiting for RPC from GSP!")).incidents
    assert (incident.action, incident.to_act_on) == (Action.RESET_GPU, (GPUS[0],))
    assert incident.reset_domain == GPUS
    (alone,) = verdict(xid(5, 119, "Timeout waiting for RPC from GSP!")).incidents
    assert alone.reset_domain == (GPUS[0],)


def test_each_gpu_says_which_others_a_reset_takes_along() -> None:
    told = [event(0, on_switches(gpu, HOPPER), source=Source.NVML) for gpu in GPUS[:2]]
    found = verdict(
        *told, event(1, Wiring(GPUS[2], HOPPER, False)), xid(5, 119), xid(5, 13, device=GPUS[2])
    )
    assert {gpu.device: gpu.resets_with for gpu in found.gpus} == {
        GPUS[0]: (GPUS[1],),
        GPUS[2]: (),
    }
