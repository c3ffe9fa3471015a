"""The shipped tables, and how broken ones are refused."""

from importlib import resources

import pytest

from health import shipped
from health.actions import Action
from health.catalogue import sxids, tables
from health.catalogue.driver import DriverVersion, version
from health.catalogue.rows import Cause
from health.catalogue.tables import CatalogueError, Tables

NAMES = Tables.__struct_fields__
SHIPPED = {
    name: resources.files("health.catalogue").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    for name in NAMES
}


def broken(table: str, before: str, after: str) -> Tables:
    assert before in SHIPPED[table]
    return Tables(**{**SHIPPED, table: SHIPPED[table].replace(before, after, 1)})


def test_every_xid_and_sxid_is_there_with_action_and_source() -> None:
    catalogue = shipped.catalogue()
    assert sorted(catalogue.xids) == list(range(1, 177))
    assert len(catalogue.sxids) >= 399
    assert sum(map(len, catalogue.nvlink5.values())) == 95
    assert sorted(catalogue.recovery_actions) == list(range(8))
    rows = [*catalogue.xids.values(), *(row for group in catalogue.sxids.values() for row in group)]
    assert all(row.source for row in rows)


def test_no_fault_of_the_application_calls_for_hardware_by_itself() -> None:
    application = [
        row for row in shipped.catalogue().xids.values() if row.cause is Cause.APPLICATION
    ]
    assert {row.code for row in application} >= {13, 31, 43}
    assert not [row.code for row in application if row.action.concerns_hardware]


def test_codes_that_are_no_longer_printed_never_act() -> None:
    retired = [row for row in shipped.catalogue().xids.values() if row.cause is Cause.RETIRED]
    assert len(retired) > 50
    assert {row.action for row in retired} == {Action.NONE}


@pytest.mark.parametrize(
    ("table", "before", "after", "said"),
    [
        ("xids", ",reboot_node,none,bus,", ",,none,bus,", "column action: '' is not one of none"),
        (
            "xids",
            ",reboot_node,none,bus,",
            ",reboot,none,bus,",
            "column action: 'reboot' is not one of",
        ),
        ("xids", "\n2,", "\n1,", "code 1 twice"),
        ("xids", "\n2,", "\ntwo,", "line 3, column code: 'two' is not a number"),
        ("xids", "code,mnemonic", "code,name", "the header is"),
        ("xids", "\n2,FIFO_ERROR_SW_METHOD,", "\n2,", "cells, expected 12"),
        ("xids", ",565,", ",new,", "column recovery_since: 'new' is not a driver version"),
        ("sxids", ",,550.40.07,In", ",,,In", "twice for the same drivers"),
        ("sxids", ",untagged,", ",maybe,", "column severity"),
        ("nvlink5", "------000000----------0000100001", "------", "32 of the characters"),
        ("nvlink5", ",0x00000001,", ",one,", "column status"),
        ("recovery_actions", "reset_gpu,none,GPU", "reset_gpu,everything,GPU", "column drain"),
    ],
)
def test_a_broken_table_is_refused_with_its_place(table, before, after, said) -> None:
    with pytest.raises(CatalogueError, match=table) as error:
        tables.catalogue(broken(table, before, after))
    assert said in str(error.value)


def test_a_table_with_an_open_quote_is_refused() -> None:
    with pytest.raises(CatalogueError):
        tables.catalogue(Tables(**{**SHIPPED, "xids": SHIPPED["xids"] + '177,"open'}))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("580.95.05", DriverVersion(580, 95, 5)),
        ("R580", DriverVersion(580)),
        ("550.40.07", DriverVersion(550, 40, 7)),
        ("570.124.04-open", DriverVersion(570, 124, 4)),
        ("latest", None),
        ("", None),
        ("9" * 40, None),
    ],
)
def test_driver_versions(text, parsed) -> None:
    assert version(text) == parsed


def test_versions_compare_as_numbers() -> None:
    assert version("595.45.04") < version("595.84")
    assert version("R575") < version("R1000")


@pytest.mark.parametrize(
    ("code", "text", "driver", "name", "how"),
    [
        (28002, "OSFP Thermal Warn Deactivated", None, "OSFP_THERM_WARN_DEACTIVATED", "text"),
        (28002, "MC TS tag store fatal ECC", "580.95.05", "NPORT_MULTICASTTSTATE_TAGPOOL_ECC_DBE_ERR", "text"),
        (28002, "", "535.54.03", "NPORT_MULTICASTTSTATE_TAGPOOL_ECC_DBE_ERR", "driver version"),
        (28002, "", "550.40.07", "OSFP_THERM_WARN_DEACTIVATED", "driver version"),
        (28002, "", None, None, "ambiguous"),
        (29006, "MC TS crumbstore MCTO", None, "NPORT_MULTICASTTSTATE_CRUMBSTORE_MCTO_ERR", "text"),
        (29006, "", "535.54.03", "NPORT_REDUCTIONTSTATE_CRUMBSTORE_RTO_ERR", "driver version"),
        (20034, "", None, "DLPL_LTSSM_FAULT_UP", "number"),
        (99999, "", None, None, "unknown"),
    ],
)  # fmt: skip
def test_switch_codes_that_were_given_away_are_told_apart(code, text, driver, name, how) -> None:
    known = version(driver) if driver else None
    found = sxids.meaning(shipped.catalogue().sxids, code, text, known)
    assert (found.row.name if found.row else None, found.how) == (name, how)


@pytest.mark.parametrize(
    ("template", "text", "fits"),
    [
        (
            "NVSWITCH Temperature %dC | OVERT Threshold %dC",
            "NVSWITCH Temperature 98C | OVERT Threshold 97C",
            True,
        ),
        (
            "NVSWITCH Temperature %dC | OVERT Threshold %dC",
            "NVSWITCH Temperature 98C | TSENSE",
            False,
        ),
        ("ALI Training failure. Info 0x%x%x", "ALI Training failure. Info 0x12", True),
        ("SOE HALTED", "the SOE HALTED", False),
    ],
)
def test_texts_with_holes(template, text, fits) -> None:
    assert sxids.fits(template, text) is fits
