"""`reelabel prompt` prints exactly what the engine is sent, token by token, without an engine."""

import json
import os
import re
from pathlib import Path

import polars as pl
import pytest

from flows.run.request import QuestionOptions
from flows.run.spec import make_spec
from infra.embedded import export
from infra.settings import PromptOptions, Settings
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sources.object_store import ObjectStore
from reelabel_engine.protocol import Batch, EngineConfig
from tasks.manifest.table import read_jobs
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.prompt import build_question
from tests.clips import make_clip
from tests.command_line import reelabel
from tests.frame_files import frame_file_of

__all__ = ["make_clip"]

_EXAMPLES = "Which colour is the sky?\nA. red\nB. blue\nAnswer: B"


@pytest.fixture
def manifest(make_clip, tmp_path):
    """Three jobs on one clip: plain, in words of its own, and with choices that begin alike."""
    rows = {
        "job_id": ["plain", "worded", "twins"],
        "video_uri": [str(make_clip())] * 3,
        "prompt": ["Which colour is it?"] * 3,
        "choices": [["red", "green"], ["red", "green"], ["yes", "yes, always"]],
        "system_prompt": [None, "Be brief.", None],
        "template": [None, "{prompt}\n{choices}\nOne letter:", None],
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "m.parquet")
    return str(tmp_path / "m.parquet")


@pytest.fixture
def prompt(services, manifest):
    """Run the command."""

    def run(*arguments, **environment):
        return reelabel(os.environ | export(services) | environment, "prompt", "--manifest", manifest, *arguments)

    return run


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    log_path = tmp_path_factory.mktemp("engine") / "engine.log"
    with EngineProcess(EngineConfig(model=str(TINY_MODEL)), log_path=log_path, start_timeout_s=240) as engine:
        yield engine


@pytest.fixture
def prompt_tokens(engine, manifest):
    """Ask the engine a job of the manifest; gives the number of tokens that it reports."""

    def ask(job_id, examples):
        spec = make_spec(
            read_model_info(str(TINY_MODEL)), Settings(), QuestionOptions(prompts=PromptOptions(examples=examples))
        )
        [job] = [one for one in read_jobs(manifest, ObjectStore(Settings().store)) if one.job_id == job_id]
        frames = extract_local(Path(job.video_uri), sampling=spec.sampling, limits=Limits())
        file = frame_file_of(frames, source_uri="v", fingerprint="e", sampling=spec.sampling)
        [answer] = engine.answer(Batch(frame_files={job.video_uri: file}, questions=(build_question(job, spec),)))
        return answer.prompt_tokens

    return ask


@pytest.mark.system
def test_the_printed_prompt_equals_the_engines_token_by_token(prompt, prompt_tokens):
    shown = json.loads(prompt("worded", "--json", "--examples", _EXAMPLES).stdout)

    assert shown["prompt_tokens"] == prompt_tokens("worded", _EXAMPLES)
    assert shown["video_tokens"] == shown["prompt"].count("<|video_pad|>") == 32
    assert shown["frame_times_s"] == [float(second) for second in range(4) for _ in range(4)]
    assert shown["prompt"].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<|vision_start|>")
    assert shown["prompt"].endswith(
        f"<|vision_end|>{_EXAMPLES}\n\nWhich colour is it?\nA. red\nB. green\nOne letter:<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.system
def test_special_tokens_repeats_and_choice_tokens_are_printed_even_if_other_jobs_are_invalid(prompt, manifest):
    rows = pl.read_parquet(manifest)
    faulty = rows.tail(1).with_columns(job_id=pl.lit("faulty"), choices=pl.lit([], pl.List(pl.String)))
    pl.concat([faulty, rows]).write_parquet(manifest)

    shown = prompt("plain", "--permutations", "2").stdout

    assert "<|vision_start|><|video_pad|>(x32)<|vision_end|>Which colour is it?\nA. red\nB. green\n" in shown
    assert re.search(r"\d+ tokens: 32 of video, ", shown)
    assert "Choices are shown in 2 orders; this is the first." in shown
    assert "red: 'A' (" in shown


@pytest.mark.system
def test_a_chunk_is_printed_as_it_is_asked_about(prompt):
    second, beyond = (prompt(f"plain#{number}", "--chunk-s", "2", "--json") for number in (1, 2))

    shown = json.loads(second.stdout)
    assert (shown["job_id"], {*shown["frame_times_s"]}) == ("plain#1", {0.0, 1.0})  # a chunk begins at 0
    assert "plain#2 is not a chunk: plain has 2 chunks, plain#0 to plain#1." in " ".join(beyond.stderr.split())


@pytest.mark.system
def test_a_job_that_would_fail_is_printed_with_every_reason(prompt):
    short = {"REELABEL_MODEL_ENGINE_ARGS": '{"max_model_len": 128}'}
    shown = prompt("twins", "--choice-scoring", "text", "--examples", "long " * 500, **short)

    assert shown.returncode == 1
    assert "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>long long" in shown.stdout
    assert "choices_ambiguous: Choices 'yes' and 'yes, always' start with the same token" in shown.stderr
    assert "prompt_too_long: The prompt with its video is longer than the model's limit of 128 tokens" in shown.stderr


def test_an_unknown_job_is_named(prompt):
    gone = prompt("nobody")

    assert gone.returncode == 2
    assert "has no job nobody; check the id" in gone.stderr
