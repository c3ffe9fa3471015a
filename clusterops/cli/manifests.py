"""`manifests`: prints what a cluster needs, for `kubectl apply -f -` or for a repository of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from clusterops.cli.errors import USAGE, CommandError

KUSTOMIZE_SECONDS = 60.0
SHIPPED_IMAGE = "clusterops"
"""The image that the manifests name, whatever its tag."""


def manifests(
    which: Annotated[
        str, typer.Argument(help="What to print: default, ha, or one folder, such as queues.")
    ] = "default",
    image: Annotated[
        str | None, typer.Option(help="The image to run, instead of the one that is named.")
    ] = None,
) -> None:
    """Print the Kubernetes manifests: clusterops manifests | kubectl apply --server-side -f -"""
    from clusterops.cli import output as printer

    root = shipped()
    folder = choices(root).get(which)
    if folder is None:
        raise CommandError(
            f"there are no manifests {which!r}",
            f"one of: {', '.join(sorted(choices(root)))}",
            USAGE,
        )
    text = rendered(folder)
    printer.write((text if image is None else with_image(text, image)).rstrip("\n"))


def shipped() -> Path:
    """The shipped manifests: beside the package in an installed wheel, or in the checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_manifests"
    return installed if installed.exists() else package.parent / "manifests"


def choices(root: Path) -> dict[str, Path]:
    """What can be printed, by name: every folder with a kustomization; overlays by their own name."""
    files = sorted(root.glob("**/kustomization.yaml"))
    return {file.parent.name: file.parent for file in files}


def rendered(folder: Path) -> str:
    """The manifests of a folder, as kubectl renders them.

    Raises:
        CommandError: there is no kubectl, or it refuses.
    """
    import subprocess

    try:
        done = subprocess.run(
            ["kubectl", "kustomize", str(folder)],
            capture_output=True,
            text=True,
            timeout=KUSTOMIZE_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        way_out = f"install kubectl, or look at the files themselves in {folder}"
        raise CommandError(
            "kubectl is not installed, and it renders the manifests", way_out
        ) from error
    if done.returncode != 0:
        raise CommandError(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    return done.stdout


def with_image(text: str, image: str) -> str:
    """The manifests with another image in every container that runs ours."""
    import yaml

    documents = [document for document in yaml.safe_load_all(text) if document]
    for document in documents:
        pod = ((document.get("spec") or {}).get("template") or {}).get("spec") or {}
        for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
            if str(container.get("image", "")).partition(":")[0] == SHIPPED_IMAGE:
                container["image"] = image
    return str(yaml.safe_dump_all(documents, sort_keys=False))
