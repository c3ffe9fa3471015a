"""Options that several commands share, each spelled and explained once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def job_names(incomplete: str) -> list[str]:
    """Completion: the names of jobs, or nothing when the cluster does not answer at once."""
    from clusterops.cli import live_names

    return live_names.jobs(incomplete)


Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        help="Kubeconfig file [default: $KUBECONFIG, else local mode when it is up, else "
        "~/.kube/config]."
    ),
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Namespace [default: the context's].")
]
Job = Annotated[
    str, typer.Argument(metavar="JOB", help="Name of the job.", autocompletion=job_names)
]
Jobs = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Names of jobs.", autocompletion=job_names)
]
Output = Annotated[Format, typer.Option("-o", "--output", help="table, wide, json, yaml or name.")]
