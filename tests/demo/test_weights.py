"""The model that ships is complete, small, and asked with the wording of its training."""

import json
from pathlib import Path
from string import ascii_uppercase

import jinja2
import pytest
from tokenizers import Tokenizer

import tasks.demo
from reelabel_engine.prompts import chat_messages, choice_tokens
from tasks.demo.actors import SIDE_PX
from tasks.demo.shapes import QUESTIONS
from tasks.description.banks import ACTIVITIES, PLACES, read_bank
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.identity import TINY_ENCODER
from tasks.model.prompts.prompt import render_question

WEIGHTS = Path(tasks.demo.__file__).parent / "reelabel-tiny"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))


def render_chat(text, system_prompt=None):
    template = jinja2.Environment(autoescape=False).from_string((WEIGHTS / "chat_template.jinja").read_text())
    return template.render(messages=chat_messages(text, system_prompt), add_generation_prompt=True)


def data_types(path):
    """The data types of a safetensors file, which begins with the length of its header, as JSON."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"}


def test_the_weights_are_float32_and_under_ten_megabytes():
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 10_000_000
    assert data_types(WEIGHTS / "model.safetensors") == {"F32"}


def test_the_image_text_model_is_float32_safetensors_and_under_six_megabytes():
    assert sum(path.stat().st_size for path in TINY_ENCODER.iterdir()) < 6_000_000
    assert {path.suffix for path in TINY_ENCODER.iterdir()} == {".json", ".safetensors"}
    assert data_types(TINY_ENCODER / "model.safetensors") == {"F32"}


def test_the_texts_of_the_shipped_banks_fit_the_image_text_model():
    tokenizer = Tokenizer.from_file(str(TINY_ENCODER / "tokenizer.json"))
    max_tokens = json.loads((TINY_ENCODER / "config.json").read_text())["text_config"]["max_position_embeddings"]

    for path in (PLACES, ACTIVITIES):
        bank = read_bank(path)
        bank.check_lengths([len(tokenizer.encode(text).ids) for text in bank.texts], max_tokens)


def test_every_letter_is_one_token_with_and_without_a_space(tokenizer):
    found = choice_tokens(
        ascii_uppercase,
        scoring="letter",
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
    )

    assert [len(tokens) for tokens in found] == [2] * 26


def test_a_rendered_chat_ends_right_before_the_answer():
    chat = render_chat("Which?", "Be brief.")

    assert chat == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>Which?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("task", QUESTIONS)
def test_the_demo_questions_take_few_tokens(tokenizer, task):
    prompt, choices = QUESTIONS[task]
    chat = render_chat(render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices))

    assert len(tokenizer.encode(chat, add_special_tokens=False).ids) < 64


def test_frames_of_the_training_size_are_not_resized():
    processor = json.loads((WEIGHTS / "processor_config.json").read_text())

    assert processor["video_processor"]["size"] == {"shortest_edge": SIDE_PX**2, "longest_edge": SIDE_PX**2}
