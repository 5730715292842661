"""Users' texts that spell special tokens are found, split and encoded as text, by the engine and before a run alike."""

import json

import pytest

from reelabel_engine.errors import SpecialTokensError
from reelabel_engine.plain_text import TextTokenizer, find_special_token, special_tokens
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.ambiguity import load_tokenizer
from tests.engine.special_texts import TEXTS
from tests.engine_python import run_by_engine

_ENCODE = """
import json, sys
from transformers import AutoTokenizer
from reelabel_engine.errors import SpecialTokensError
from reelabel_engine.plain_text import text_tokenizer
from tests.engine.special_texts import TEXTS

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
encoded = [text_tokenizer(tokenizer)(text) for text in TEXTS]
specials = list(tokenizer.added_tokens_decoder)
print(json.dumps([encoded, [tokenizer.decode(ids) for ids in encoded], specials]))
"""


@pytest.mark.system
def test_the_engine_and_the_check_before_a_run_encode_text_equally():
    completed = run_by_engine("-c", _ENCODE, TINY_MODEL, capture_output=True, text=True)

    encoded, decoded, specials = json.loads(completed.stdout.splitlines()[-1])
    encode = load_tokenizer(read_model_info(str(TINY_MODEL)))
    assert [encode(text) for text in TEXTS] == encoded
    assert decoded == list(TEXTS)
    assert specials
    assert not {*specials}.intersection(token for ids in encoded for token in ids)


def test_a_text_of_only_special_tokens_is_split_in_linear_time():
    plain = TextTokenizer(lambda text: [0] if "<|x|>" in text else [1], {"<|x|>": 0})

    assert len(plain.split("<|x|>" * 100_000)) == 100_001


def test_a_tokenizer_without_special_tokens_splits_nothing():
    assert special_tokens({}) == {}
    assert TextTokenizer(lambda text: [len(text)], {}).split("<|im_end|>") == ["<|im_end|>"]


@pytest.mark.parametrize(
    "text",
    [
        *("<|im_end|>", "<|video_pad|>", "<|begin_of_video|>", "<|eot_id|>", "<|turn>", "<turn|>", '<|"|>'),
        *("<s>", "</s>", "<image>", "<video>", "<img>", "<IMG_CONTEXT>", "<start_of_turn>", "<think>", "</think>"),
        *("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "[gMASK]", "<sop>", "<unk>", "<pad>", "<fim_prefix>"),
        *(
            "<\uff5cUser\uff5c>",
            "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
            "<|vision_start|>",
            "<image_soft_token>",
            "<tool_call>",
        ),
    ],
)
def test_special_tokens_of_published_models_are_recognised_by_their_form(text):
    assert find_special_token(f"Is it red?{text} Say so.") == text


@pytest.mark.parametrize(
    "text",
    [
        *("a<b|c>d", "a < b | c > d", "x <| y", "A <|-- B", "A <|--|> B", "f |> g", "<b>bold</b>", "<br>", "<table>"),
        *('<img src="x">', "<video controls>", "[1]", "[x]", "[IMAGE]", "List<int>", "a<s>b"[:3], "<-> <= >=", "<3"),
        *("|x|", "||", "<>", "<a href='#'>", "vector<T>", "if (a<b&&c>d)", "Is it <red> or <blue>?", "1 <|2"),
    ],
)
def test_ordinary_text_does_not_look_like_a_special_token(text):
    assert find_special_token(text) is None


class Added:
    """An added token, as of `tokenizers`."""

    def __init__(self, content, *, special=False):
        self.content, self.special = content, special


@pytest.mark.parametrize(
    ("added", "template", "is_special"),
    [
        pytest.param(Added("</s>", special=True), "", True, id="marked"),
        pytest.param(Added("<|im_end|>"), "", True, id="by its bars"),
        pytest.param(Added("[INST]"), "{{ '[INST]' }}", True, id="by the template"),
        pytest.param(Added("[INST]"), "", False, id="of no template"),
        pytest.param(Added("user"), "user: {{ messages }}", False, id="a word of the template"),
        pytest.param(Added("  ", special=True), "", False, id="only spaces"),
        pytest.param(Added("<0x0A>", special=True), "", False, id="a byte"),
        pytest.param(Added("<unk>", special=True), "", False, id="an unknown character"),
    ],
)
def test_added_tokens_are_special_if_they_are_marked_or_structure_a_prompt(added, template, is_special):
    assert special_tokens({3: added}, template=template) == ({added.content: 3} if is_special else {})


def encode_by_mark(text):
    """Encode a text to 0 for each mark that it spells, and 1 for anything else."""
    return [0] * text.count("<|x|>") + [1] * bool(text.replace("<|x|>", ""))


def test_a_text_is_cut_within_each_special_token_that_it_spells():
    plain = TextTokenizer(encode_by_mark, {"<|x|>": 0})

    assert plain.split("ab") == ["ab"]
    assert plain.split("a<|x|>b<|x|>") == ["a<", "|x|>b<", "|x|>"]
    assert plain("a<|x|>b") == [1, 1]
    assert (plain.find("a<|X|>"), plain.find("a")) == ("<|X|>", None)
    assert plain.count([0, 1, 0, 2]) == {0: 2}


def test_of_tokens_that_begin_alike_the_longest_is_found():
    assert TextTokenizer(list, {"<a>": 0, "<a><b>": 1}).find("x<a><b>") == "<a><b>"


def test_a_special_token_that_stays_one_when_it_is_cut_is_refused_by_its_text():
    plain = TextTokenizer(lambda text: [0] if "x" in text else [1], {"<|x|>": 0})

    with pytest.raises(SpecialTokensError, match=r"finds a special token in '.{58}.*', and cannot encode it") as raised:
        plain.split("x" * 1000)
    assert len(raised.value.message) < 200
