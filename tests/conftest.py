"""Shared by every tier: the folder of test doubles is importable as `support`, and one Hypothesis.

The suite is the same every time it runs: Hypothesis takes its examples from the test's own name.
`CLUSTEROPS_SOAK=1` searches anew on each run; what that finds becomes an example of its own.
"""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("soak", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("soak" if os.environ.get("CLUSTEROPS_SOAK") else "suite")
