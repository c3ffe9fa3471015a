"""What `explain` says: what was read, the rule, and what would change it."""

import pytest
from support.health_builders import policy

from health import shipped
from health.catalogue.driver import version
from health.explain import explain


def said(asked: str, driver: str | None = None) -> dict[str, list[str]]:
    points: dict[str, list[str]] = {}
    for point in explain(asked, shipped.catalogue(), policy(), version(driver) if driver else None):
        points.setdefault(point.about, []).append(point.says)
    return points


@pytest.mark.parametrize("asked", ["79", "xid:79", "Xid 79", " XID79 "])
def test_a_code_is_explained_with_its_source_and_what_repetition_means(asked: str) -> None:
    points = said(asked)
    assert points["action"] == ["reboot_node"]
    assert points["source"]
    assert "bus_lost_again" in points["hardware_ticket when"][0]
    assert "R565" in points["recovery action"][0]


def test_a_switch_code_shows_each_meaning_and_the_drivers_it_belongs_to() -> None:
    meanings = said("sxid:28002")["meaning"]
    assert len(meanings) == 2
    assert any("before 550.40.07" in each for each in meanings)
    assert any("since 550.40.07" in each for each in meanings)


def test_a_line_is_explained_down_to_its_words() -> None:
    line = "NVRM: Xid (PCI:0018:01:00): 145, pid=7, name=ray::Worker, RLW_REMAP Fatal XC1 i0 Link 10 (0x82 0x40)"
    points = said(line)
    assert points["read as"] == ["xid 145"]
    assert points["device"] == ["0018:01:00.0"]
    assert "need not be the cause" in points["named process"][0]
    assert points["rule"] == ["nvlink5_sheet"]
    assert "layout 1" in points["why"][0]


def test_the_slice_of_a_mig_line_is_named() -> None:
    points = said("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7741, Contained: CE User Channel")
    assert "GPU instance 5" in points["MIG slice"][0]


@pytest.mark.parametrize(
    ("asked", "word"),
    [("300", "not in it"), ("sxid:99999", "not in it"), ("hello", "not a line"), ("", "not a line"),
     ("host root: NVRM: quoted", "no fault")],
)  # fmt: skip
def test_what_is_not_known_is_said_so(asked: str, word: str) -> None:
    assert any(word in each for says in said(asked).values() for each in says)


def test_every_code_of_the_catalogue_can_be_explained() -> None:
    for code in shipped.catalogue().xids:
        assert said(str(code))["rule"]
    for code in list(shipped.catalogue().sxids)[::7]:
        assert said(f"sxid:{code}")["rule"]


def test_the_drivers_number_is_shown_with_the_words_of_old_and_new_drivers() -> None:
    line = "NVRM: Xid (PCI:0000:0d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)"
    number = said(line)["number"][0]
    assert "GPU Reset Required" in number
    assert "PF FLR" in number
