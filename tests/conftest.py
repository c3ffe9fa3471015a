"""Shared by every tier: the folder of test doubles is importable as `support`, and one Hypothesis.

The suite is the same every time it runs: Hypothesis takes its examples from the test's own name.
`CLUSTEROPS_SOAK=1` searches anew on each run; what that finds becomes an example of its own.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("soak", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("soak" if os.environ.get("CLUSTEROPS_SOAK") else "suite")

NEEDS_TORCH = re.compile(r"^(?:torch = )?pytest\.importorskip\(\"torch\"\)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are nothing without torch are not even imported when its tests are not wanted."""
    unwanted = "not torch" in config.option.markexpr and collection_path.name.startswith("test_")
    if unwanted and NEEDS_TORCH.search(collection_path.read_text(encoding="utf-8")):
        return True
    return None
