import subprocess
import sys
from pathlib import Path

import flows.cli


def test_commands_import_neither_prefect_nor_fastapi():
    """Prefect reads its environment, such as the format of its log lines, when it is imported; both take their time."""
    modules = [f"flows.cli.{path.stem}" for path in Path(flows.cli.__path__[0]).glob("*.py") if path.stem != "__init__"]
    script = f"import sys, {', '.join(modules)}; print({{'prefect', 'fastapi'}} & sys.modules.keys())"

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert len(modules) > 10
    assert shown == "set()\n"
