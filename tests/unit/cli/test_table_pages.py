"""Pages of a Table."""

import json

import pytest

from clusterops.cli import table_pages
from clusterops.kube.errors import Unreachable


def page(**fields) -> table_pages.Page:
    return table_pages.decode(json.dumps({"kind": "Table", **fields}).encode())


def test_cells_come_with_or_without_their_namespace() -> None:
    rows = [{"cells": ["a", 1], "object": {"metadata": {"name": "a", "namespace": "n"}}}]
    found = page(columnDefinitions=[{"name": "Name"}], rows=rows, metadata={"continue": "next"})
    assert found.rows == [["a", 1]]
    assert found.rows_with_namespace() == [["n", "a", 1]]
    assert found.continue_token == "next"


def test_rows_without_objects_and_no_rows_at_all() -> None:
    assert page(rows=[{"cells": ["a"], "object": None}]).rows == [["a"]]
    assert page() == ([], [], [], [], "")


def test_a_page_can_be_narrowed_to_the_rows_of_some_objects() -> None:
    def row(name: str, **annotations: str) -> dict:
        metadata = {"name": name, "namespace": "n", "annotations": annotations}
        return {"cells": [name], "object": {"metadata": metadata}}

    rows = [row("a", by="me"), row("b"), row("c", by="me"), {"cells": ["d"], "object": None}]
    narrowed = page(rows=rows).only(lambda annotations: (annotations or {}).get("by") == "me")
    assert narrowed.rows_with_namespace() == [["n", "a"], ["n", "c"]]


def test_an_answer_that_is_no_table_is_named() -> None:
    with pytest.raises(Unreachable, match="no table"):
        table_pages.decode(b"<html>")
