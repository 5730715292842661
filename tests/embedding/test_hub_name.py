"""A model by its name on the hub: from what was downloaded once; and where neither it nor the network is there."""

import os
import shutil
import subprocess
import sys

import pytest

from tasks.model.identity import TINY_ENCODER
from tests.http_server import Handler, serve

NAME, COMMIT = "team/shapes", "0123456789abcdef0123456789abcdef01234567"
NOWHERE = "http://127.0.0.1:9"  # a port that nobody listens at, so that the network is as good as gone
EMBED = """
import sys
from pathlib import Path
import numpy as np
from reelabel.errors import ReelabelError
from reelabel_engine.protocol import EncoderConfig
from tasks.model.identity import TINY_ENCODER
from tasks.embedding.encoder import EncoderProcess
from tasks.model.identity import read_model_info

vectors = []
for name in (sys.argv[1], str(TINY_ENCODER)):
    try:
        card = read_model_info(name)
    except ReelabelError as error:
        sys.exit(error.message)
    config = EncoderConfig(model=card.location, revision=card.revision)
    with EncoderProcess(config, log_path=Path(sys.argv[2]), start_timeout_s=900) as encoder:
        vectors.append(encoder.embed_texts(["a red circle"]).vectors)
    print(card.identity.name, card.identity.revision)
print(np.array_equal(*vectors))
"""


@pytest.fixture
def embed(tmp_path):
    def run(home, **options):
        command = [sys.executable, "-P", "-c", EMBED, NAME, str(tmp_path / "encoder.log")]
        hub = {"HF_HOME": str(home), "HF_ENDPOINT": NOWHERE, "PYTHONPATH": os.pathsep.join(sys.path)} | options
        return subprocess.run(command, env=os.environ | hub, capture_output=True, text=True, check=False, timeout=600)

    return run


@pytest.mark.system
@pytest.mark.xdist_group("encoder")
def test_a_model_that_was_downloaded_once_is_found_by_its_name(embed, tmp_path):
    cached = tmp_path / "home" / "hub" / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(TINY_ENCODER, cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)

    ran = embed(tmp_path / "home", HF_HUB_OFFLINE="1")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == f"{NAME} {COMMIT}"
    assert ran.stdout.splitlines()[-1] == "True"


def test_a_model_that_cannot_be_reached_is_reported_in_a_sentence(embed, tmp_path):
    ran = embed(tmp_path / "home")

    assert ran.returncode == 1
    assert ran.stderr.startswith(f"Cannot reach or find model {NAME} on the hub (")
    assert ran.stderr.rstrip().endswith("; check the name and the network, or give a model folder.")


class HubWithoutConfig(Handler):
    def do_HEAD(self):
        self.respond(404, X_Error_Code="EntryNotFound")


def test_a_checkpoint_without_config_such_as_of_openclip_is_refused_by_name(embed, tmp_path):
    with serve(HubWithoutConfig) as hub:
        ran = embed(tmp_path / "home", HF_ENDPOINT=hub.url)

    assert ran.stderr.startswith(f"Model {NAME} on the hub has no config.json; name a version that transformers loads")
    assert ran.stderr.rstrip().endswith(f"`hf download {NAME} --local-dir FOLDER`, and give that folder.")
