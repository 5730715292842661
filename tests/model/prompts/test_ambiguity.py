"""Jobs with indistinguishable choices are found before anything is sent to the model."""

import shutil
from dataclasses import replace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from tasks.domain import Job
from tasks.manifest.digests import jobs_to_rows
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.ambiguity import find_ambiguous_jobs, load_tokenizer


@pytest.fixture(scope="module")
def encode():
    return load_tokenizer(read_model_info(str(TINY_MODEL)))


def jobs(*choices):
    few = [Job(job_id=f"j{number}", video_uri="v", prompt="?", choices=one) for number, one in enumerate(choices)]
    return [jobs_to_rows(few)]


def test_ambiguous_choices_are_counted_and_named_with_the_reason(encode):
    checked = jobs(("yes", "no"), ("yes", "yes, always"), ("red", "green"), ("yes", "yes, always"), ("no", "no, never"))

    found = find_ambiguous_jobs(checked, scoring="text", encode=encode)

    assert found.count == 3
    assert str(found).startswith(
        "3 of 5 jobs have choices that a single token cannot tell apart (for example j1, j3): Choices"
    )
    assert "'yes' and 'yes, always' start with the same token" in str(found)


def test_letters_distinguish_any_choices_up_to_their_number(encode):
    many = tuple(str(number) for number in range(27))

    assert find_ambiguous_jobs(jobs(("yes", "yes, always")), scoring="letter", encode=encode) is None
    found = find_ambiguous_jobs(jobs(("yes", "no"), many), scoring="letter", encode=encode)
    assert str(found) == (
        "1 of 2 jobs has choices that a single token cannot tell apart (for example j1): 27 choices exceed the 26 "
        "letters; give at most 26, or use choice_scoring 'text'."
    )


def test_a_model_without_a_tokenizer_file_is_left_to_the_engine(tmp_path):
    folder = shutil.copytree(TINY_MODEL, tmp_path / "model")
    (folder / "tokenizer.json").unlink()

    assert load_tokenizer(replace(read_model_info(str(TINY_MODEL)), location=str(folder))) is None


def test_a_tokenizer_that_fails_on_a_character_that_it_lacks_is_left_to_the_engine(tmp_path):
    folder = shutil.copytree(TINY_MODEL, tmp_path / "model")
    Tokenizer(WordPiece({"yes": 0, "no": 1})).save(str(folder / "tokenizer.json"))

    assert load_tokenizer(replace(read_model_info(str(TINY_MODEL)), location=str(folder))) is None
