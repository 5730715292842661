"""The text of a question is laid out in one place, for training and inference alike."""

import jinja2

from reelabel_engine.prompts import chat_messages
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.identity import TINY_MODEL
from tasks.model.prompts.prompt import render_choices, render_question


def test_choices_are_listed_one_per_line_after_their_letters():
    assert render_choices(["red", "green"]) == "A. red\nB. green"


def test_choices_after_z_have_no_letter():
    lines = render_choices([str(number) for number in range(28)]).splitlines()

    assert lines[25:] == ["Z. 25", "26", "27"]


def test_the_default_template_puts_the_question_before_choices_and_instruction():
    text = render_question(DEFAULT_TEMPLATE, prompt="Which?", choices=["x", "y"])

    assert text == "Which?\nA. x\nB. y\nAnswer with the option's letter from the given choices directly."


def test_braces_in_a_prompt_or_choice_are_unchanged():
    text = render_question("{prompt}|{choices}", prompt="{choices} {0}", choices=["{prompt}", "b"])

    assert text == "{choices} {0}|A. {prompt}\nB. b"


def test_doubled_braces_in_a_template_become_single_ones():
    assert render_question("{{{prompt}}} {choices}", prompt="p", choices=["a", "b"]) == "{p} A. a\nB. b"


def test_examples_come_before_the_question():
    text = render_question("{prompt}\n{choices}", prompt="Which?", choices=["x", "y"], examples="Q: {one}\nA")

    assert text == "Q: {one}\nA\n\nWhich?\nA. x\nB. y"


def test_the_shipped_template_puts_the_video_before_the_question():
    template = jinja2.Environment(autoescape=False).from_string((TINY_MODEL / "chat_template.jinja").read_text())

    chat = template.render(messages=chat_messages("Which?", "Be brief."))

    assert chat.index("Be brief.") < chat.index("<|video_pad|>") < chat.index("Which?")
