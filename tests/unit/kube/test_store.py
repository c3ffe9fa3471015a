"""The store: keys, indexes, differences of a relist, listeners."""

import pytest

from clusterops.kube.store import Change, Store


def colour_store():
    return Store[dict]({"colour": lambda value: value.get("colours", [])})


def test_objects_are_found_by_key_and_by_index():
    store = colour_store()
    store.put(("ns", "a"), {"colours": ["red", "blue", "red"]}, "1")
    store.put(("ns", "b"), {"colours": ["red"]}, "2")
    assert store.get(("ns", "a")) == {"colours": ["red", "blue", "red"]}
    assert store.get(("ns", "none")) is None
    assert store.keys_by_index("colour", "red") == [("ns", "a"), ("ns", "b")]
    assert store.by_index("colour", "blue") == [{"colours": ["red", "blue", "red"]}]
    assert store.by_index("colour", "green") == []
    assert store.index_values("colour") == ["red", "blue"]
    assert store.resource_version(("ns", "b")) == "2"
    assert (("ns", "a") in store, len(store), list(store)) == (True, 2, [("ns", "a"), ("ns", "b")])


def test_an_unknown_index_is_an_error_not_an_empty_answer():
    with pytest.raises(KeyError):
        colour_store().by_index("size", 3)


def test_a_changed_object_leaves_its_old_index_values():
    store = colour_store()
    store.put(("", "a"), {"colours": ["red"]})
    store.put(("", "a"), {"colours": ["blue"]})
    assert store.by_index("colour", "red") == []
    assert store.index_values("colour") == ["blue"]
    store.remove(("", "a"))
    assert store.index_values("colour") == []
    assert store.remove(("", "a")) is None


def test_an_index_function_that_fails_changes_nothing():
    store = Store[int]({"odd": lambda value: [1 // value]})
    store.put(("", "a"), 1, "1")
    with pytest.raises(ZeroDivisionError):
        store.put(("", "a"), 0, "2")
    assert store.get(("", "a")) == 1
    assert store.keys_by_index("odd", 1) == [("", "a")]


def test_replace_tells_only_differences():
    store = colour_store()
    told = []
    for name in ("kept", "changed", "gone"):
        store.put(("", name), {"name": name}, "1")
    store.subscribe(lambda key, before, after: told.append((key[1], before, after)))
    change = store.replace(
        {
            ("", "kept"): ({"name": "kept"}, "1"),
            ("", "changed"): ({"name": "new"}, "2"),
            ("", "added"): ({"name": "added"}, "3"),
        }
    )
    assert change == Change([("", "added")], [("", "changed")], [("", "gone")])
    assert told == [
        ("gone", {"name": "gone"}, None),
        ("changed", {"name": "changed"}, {"name": "new"}),
        ("added", None, {"name": "added"}),
    ]


def test_objects_without_a_version_are_always_taken_as_changed():
    store = colour_store()
    store.put(("", "a"), {"n": 1}, "")
    assert store.replace({("", "a"): ({"n": 2}, "")}).changed == [("", "a")]
    assert store.get(("", "a")) == {"n": 2}
