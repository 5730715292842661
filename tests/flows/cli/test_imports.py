import subprocess
import sys
from pathlib import Path

import flows.cli


def test_commands_import_neither_prefect_nor_fastapi():
    """Prefect reads its environment, such as the format of its log lines, when it is imported; both take their time."""
    folder = Path(flows.cli.__path__[0])
    folders = (folder, *(folder / name for name in ("live", "operations", "rows", "runs", "videos")))
    paths = [path for parent in folders for path in parent.glob("*.py") if path.stem != "__init__"]
    modules = [".".join(path.relative_to(folder.parents[1]).with_suffix("").parts) for path in paths]
    script = f"import sys, {', '.join(modules)}; print({{'prefect', 'fastapi'}} & sys.modules.keys())"

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert len(modules) > 10
    assert shown == "set()\n"
