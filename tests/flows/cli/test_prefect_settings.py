import os
import subprocess
import sys

import pytest

# In a process of its own, as Prefect reads its settings when it is imported.
_CODE = """
from flows.cli.command_group import _explain_prefect_fault
try:
    import prefect.settings
    prefect.settings.get_current_settings()
except ValueError as error:
    print(_explain_prefect_fault(error))
"""


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("PREFECT_API_REQUEST_TIMEOUT", "soon", "PREFECT_API_REQUEST_TIMEOUT: 'soon' must be a number; correct"),
        # What is part of a value may be a secret.
        (
            "PREFECT_CLIENT_CUSTOM_HEADERS",
            '{"Authorization": ["hunter2"]}',
            "Authorization (ClientSettings) must be text; correct",
        ),
    ],
)
def test_a_wrong_setting_of_prefects_is_named_and_no_secret_is_printed(name, text, message):
    command = [sys.executable, "-c", _CODE]

    stdout = subprocess.run(command, env=os.environ | {name: text}, capture_output=True, text=True, check=True).stdout

    assert message in stdout
    assert "hunter2" not in stdout
