"""`reelabel live --audio` behind a real service whose model hears: Qwen2.5-Omni's thinker, tiny and random."""

import json

import pytest
from sqlalchemy import select

from tasks.database.live_tables import LIVE_QUERY
from tests.command_line import reelabel_process as run_command
from tests.flows.cli.live.test_client import write_video
from tests.flows.runs import environment_of
from tests.flows.serve.served import serving
from tests.model.families.saved import saved

pytestmark = pytest.mark.system
SECONDS = 4


def test_a_file_with_audio_is_heard_by_the_model_and_asked_about(services, database, store_settings, db, tmp_path):
    own = {"home": tmp_path / "home", "database": database, "store": store_settings}
    environment = environment_of(services.model_copy(update=own))
    video = write_video(tmp_path / "tone.mp4", seconds=SECONDS, tone_hz=440)
    model = {"REELABEL_MODEL_NAME": str(saved("qwen2_5_omni", tmp_path)), "REELABEL_SERVE_LOAD": '["live"]'}
    options = ("--ask", "Which?", "--choices", "red,green", "--every", "1.5", "--json")
    with serving(environment | model) as served:
        heard = run_command(environment, "live", str(video), "--audio", *options, "--url", served.url)
        unheard = run_command(environment, "live", str(video), "--no-audio", *options, "--url", served.url)

    assert (heard.returncode, unheard.returncode) == (0, 0), heard.stderr + unheard.stderr
    of_heard, of_unheard = ([json.loads(line) for line in each.stdout.splitlines()] for each in (heard, unheard))
    assert len(of_heard) >= 2
    assert of_heard[-1]["audio_s"] == pytest.approx(of_heard[-1]["last_frame_s"], abs=1)
    assert of_heard[-1]["cached_tokens"] > 0, "frames and audio were read as they came"
    assert {each["audio_s"] for each in of_unheard} == {0}
    assert of_heard[-1]["probabilities"] != pytest.approx(of_unheard[-1]["probabilities"], abs=1e-6)
    with db.connect() as connection:
        rows = connection.execute(select(LIVE_QUERY.c.answer, LIVE_QUERY.c.audio_s)).all()
    expected = [(each["text"], pytest.approx(each["audio_s"])) for each in (*of_heard, *of_unheard)]
    assert len(rows) == len(expected)
    assert all((row.answer, row.audio_s) in expected for row in rows)
