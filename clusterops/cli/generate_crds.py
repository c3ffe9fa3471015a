"""Writes the CustomResourceDefinitions of our kinds: `python -m clusterops.cli.generate_crds DIR`.

The definitions come from the models; a test compares the committed files with a fresh run.
"""

import sys
from pathlib import Path

from clusterops.api import crd


def files() -> dict[str, str]:
    """File name to text, for every kind of ours and the kustomization that lists them."""
    texts = {
        crd.file_name(definition): crd.render(definition)
        for definition in map(crd.definition, crd.OURS)
    }
    lines = ["apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization", "resources:"]
    lines += [f"  - {name}" for name in texts]
    return {**texts, "kustomization.yaml": "\n".join(lines) + "\n"}


def main(arguments: list[str]) -> int:
    """Writes the files into the one folder named; the exit code."""
    if len(arguments) != 1:
        print("usage: python -m clusterops.cli.generate_crds DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
