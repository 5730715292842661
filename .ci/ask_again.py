"""Run the few tests that failed once more, alone, and name them.

Tests of whole systems share two cores with each other and with strangers, so that one may miss its moment. A fault of
the code fails again; a test named here and passed is still one to mend. More than a few failures are no such moment.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

_MOST = 5

failed = sorted(json.loads(Path(".pytest_cache/v/cache/lastfailed").read_text()))
# pytest-xdist adds the group of a test to its name, after the parameters.
names = [re.sub(r"(\]|::\w+)@[^\[]*$", r"\1", name) for name in failed]
if not 1 <= len(names) <= _MOST:
    sys.exit(f"{len(names)} tests failed; none is run again.")
print(f"Failed beside the others, and run again alone: {', '.join(names)}", flush=True)
sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-n", "0", *names]))
