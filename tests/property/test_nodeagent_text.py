"""Variable expansion, path translation and quantities, on arbitrary text."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from clusterops.nodeagent import quantities
from clusterops.nodeagent.environment import expand
from clusterops.nodeagent.volumes import Mounts

NAMES = st.sampled_from(["A", "B", "LONG_NAME", ""])
PIECES = st.one_of(
    st.text(alphabet="ab$()", max_size=6),
    NAMES.map(lambda name: f"$({name})"),
    NAMES.map(lambda name: f"$$({name})"),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
VARIABLES = st.dictionaries(NAMES, st.text(alphabet="xy$()", max_size=5), max_size=3)


def expand_by_character(text: str, variables: dict[str, str]) -> str:
    """The same, read off Kubernetes' description one character at a time."""
    out, rest = "", text
    while rest:
        head, rest = rest[0], rest[1:]
        if head != "$" or not rest:
            out += head
        elif rest[0] == "$":
            out, rest = out + "$", rest[1:]
        elif rest[0] == "(" and ")" in rest:
            name, rest = rest[1 : rest.index(")")], rest[rest.index(")") + 1 :]
            out += variables.get(name, f"$({name})")
        else:
            out, rest = out + "$" + rest[0], rest[1:]
    return out


@given(TEXTS, VARIABLES)
def test_expansion_is_that_of_kubernetes(text, variables) -> None:
    assert expand(text, variables) == expand_by_character(text, variables)


@given(st.text(max_size=30).filter(lambda text: "$" not in text), VARIABLES)
def test_text_without_a_dollar_stays(text, variables) -> None:
    assert expand(text, variables) == text


@given(TEXTS, VARIABLES)
def test_doubling_every_dollar_protects_everything(text, variables) -> None:
    assert expand(text.replace("$", "$$"), variables) == text


PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


@given(st.dictionaries(PATHS, st.just(""), max_size=4), PATHS)
def test_translation_takes_the_longest_mount_that_holds_the_path(mounts, path) -> None:
    targets = {mount: f"/real{number}" for number, mount in enumerate(mounts)}
    found = Mounts(targets.items()).translate(path)
    holding = [m for m in targets if path == m or path.startswith(m + "/")]
    if not holding:
        assert found == path
    else:
        longest = max(holding, key=len)
        assert found == targets[longest] + path.removeprefix(longest)


@given(st.integers(0, 10**9), st.sampled_from(["", "m", "k", "Ki", "Gi", "M"]))
def test_a_quantity_and_its_notations_agree(number, suffix) -> None:
    factor = {"": 1, "m": Fraction(1, 1000), "k": 1000, "Ki": 1024, "Gi": 1024**3, "M": 10**6}
    assert quantities.parse(f"{number}{suffix}") == number * factor[suffix]


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_refused(text) -> None:
    try:
        quantities.parse(text)
    except quantities.MalformedQuantity:
        return
    assert text.strip().isascii()
    assert any(character.isdigit() for character in text)
