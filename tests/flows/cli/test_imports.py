import subprocess
import sys
from pathlib import Path

import flows.cli


def test_commands_configure_prefect_before_it_is_imported():
    """Prefect reads its environment, such as the format and the level of its log lines, when it is imported."""
    modules = [f"flows.cli.{path.stem}" for path in Path(flows.cli.__path__[0]).glob("*.py") if path.stem != "__init__"]
    script = f"import sys, {', '.join(modules)}; print([name for name in sys.modules if name == 'prefect'])"

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert len(modules) > 10
    assert shown == "[]\n"
