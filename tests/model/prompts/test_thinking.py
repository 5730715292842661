"""Chat templates that have a model think before it answers."""

import json
from dataclasses import replace

import pytest

from reelabel_engine.errors import ModelError
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.thinking import find_open_tag, render_ending, require_answer_first

PARTS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<video>{% endif %}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
)
TEXTS = "{% for message in messages %}{{ '[' + message['role'] + '] ' + message['content'] }}{% endfor %}"
ASSISTANT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
# As those of published models write it.
ALWAYS = PARTS + ASSISTANT + "{{ '<think>\n' }}"
CLOSED_IF_OFF = (
    PARTS
    + ASSISTANT
    + "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)
OPEN_UNLESS_OFF = (
    PARTS
    + ASSISTANT
    + "{% if enable_thinking | default(true) %}{{ '<think>\n' }}{% else %}{{ '<think></think>' }}{% endif %}"
)
BEGUN = TEXTS + "{% if thinking != 'off' %}[THINK]Let me see.{% endif %}"


@pytest.fixture
def model_info_of(tmp_path):
    """Make the facts of a model with a chat template."""

    def make(template, *, file="chat_template.jinja"):
        content = template if file.endswith(".jinja") else json.dumps({"chat_template": template})
        (tmp_path / file).write_text(content)
        return replace(read_model_info(str(TINY_MODEL)), location=str(tmp_path))

    return make


@pytest.mark.parametrize(
    ("template", "arguments", "tag"),
    [
        pytest.param(ALWAYS, {}, "<think>", id="always"),
        pytest.param(ALWAYS, {"enable_thinking": False}, "<think>", id="always, whatever is set"),
        pytest.param(CLOSED_IF_OFF, {}, None, id="left to the model"),
        pytest.param(CLOSED_IF_OFF, {"enable_thinking": False}, None, id="closed if off"),
        pytest.param(OPEN_UNLESS_OFF, {}, "<think>", id="open by default"),
        pytest.param(OPEN_UNLESS_OFF, {"enable_thinking": False}, None, id="open by default, but off"),
        pytest.param(BEGUN, {}, "[THINK]", id="a thought that has begun"),
        pytest.param(BEGUN, {"thinking": "off"}, None, id="another argument"),
        pytest.param(PARTS + ASSISTANT, {}, None, id="no thoughts"),
        pytest.param("{{ raise_exception('no') }}", {}, None, id="refused"),
        pytest.param("{% broken", {}, None, id="broken"),
        pytest.param("{{ 1 / 0 }}", {}, None, id="another error than the template engine's own"),
    ],
)
def test_a_prompt_that_ends_within_a_thought_is_refused(model_info_of, template, arguments, tag):
    ending = render_ending(model_info_of(template), arguments)

    if tag is None:
        require_answer_first("m", ending)
        return
    with pytest.raises(ModelError) as raised:
        require_answer_first("m", ending)
    assert raised.value.message.startswith(f"The chat template of m ends the prompt with {tag}, so that the model")
    assert "set model.chat_template_args, such as enable_thinking = false" in raised.value.message


@pytest.mark.parametrize("file", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_a_template_is_found_in_any_file_that_may_have_it(model_info_of, file):
    assert render_ending(model_info_of(ALWAYS, file=file), {}).endswith("<think>\n")


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", None),
        ("<seed:think>", "<seed:think>"),
        ("◁think▷", "◁think▷"),
        ("◁think▷◁/think▷", None),
        ("<|thinking|>", "<|thinking|>"),
        ("<thinking_style>", None),
        ("I think so.", None),
    ],
)
def test_tags_of_thoughts_are_distinguished_from_text(text, tag):
    assert find_open_tag(text) == tag


def test_the_tiny_model_answers_at_once():
    ending = render_ending(read_model_info(str(TINY_MODEL)), {})

    assert ending == "<|im_end|>\n<|im_start|>assistant\n"
