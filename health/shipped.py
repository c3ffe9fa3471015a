"""The catalogue and the policy that come with the package: the one place that opens their files."""

from functools import cache
from importlib import resources

from health.catalogue import tables
from health.policy import yaml_text
from health.policy.schema import Policy


@cache
def catalogue() -> tables.Catalogue:
    """The shipped catalogue, checked.

    Raises:
        CatalogueError: the package's own tables are broken.
    """
    folder = resources.files("health.catalogue")
    names = tables.Tables.__struct_fields__
    texts = {name: folder.joinpath(f"{name}.csv").read_text(encoding="utf-8") for name in names}
    return tables.catalogue(tables.Tables(**texts))


def policy_text() -> str:
    """The shipped policy as it is written."""
    return resources.files("health.policy").joinpath("default.yaml").read_text(encoding="utf-8")


@cache
def policy() -> Policy:
    """The shipped policy, checked."""
    return yaml_text.policy(policy_text())
