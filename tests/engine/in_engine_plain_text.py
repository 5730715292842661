"""Users' texts are encoded as text, by every kind of tokenizer of transformers, whatever special tokens they spell."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from reelabel_engine.errors import SpecialTokensError
from reelabel_engine.plain_text import text_tokenizer
from tests.engine.special_texts import TEXTS

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|video_pad|>", "</s>", "[INST]", "<video>", "<\uff5cUser\uff5c>")
CORPUS = ["Which colour is the shape? red green blue im_start im_end video pad INST s |<>[]/ User", *SPECIALS] * 20
ORDINARY = "Which colour? a<b|c>d [x] </b> 100% — ja, naïve \U0001f600\n\n  x"


def byte_level():
    """As GPT-2, Qwen and Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    return tokenizer


def whole_words():
    """As Llama 3, which takes a word that is a token before it merges anything."""
    tokenizer = byte_level()
    tokenizer.model.ignore_merges = True
    return tokenizer


def with_fallback():
    """As Llama 2 and Gemma: SentencePiece's BPE, whose unknown characters become bytes."""
    bytes_of_all = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(special_tokens=["<unk>", *bytes_of_all], show_progress=False)
    )
    return tokenizer


def unigram():
    """As T5 and XLM-R: SentencePiece's unigram model, with unknown characters."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def word_piece():
    """As BERT: in small letters, with unknown words."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


KINDS = (byte_level, whole_words, with_fallback, unigram, word_piece)


def add_specials(tokenizer, *, is_special=True, is_normalized=False):
    tokens = [AddedToken(text, special=is_special, normalized=is_normalized) for text in SPECIALS]
    (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)(tokens)
    unknown = getattr(tokenizer.model, "unk_token", None)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown, chat_template="".join(SPECIALS))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def tokenizer(request):
    return add_specials(request.param())


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_spells_a_special_token_is_encoded_without_it(tokenizer, text):
    ids = text_tokenizer(tokenizer)(text)

    specials = set(tokenizer.convert_tokens_to_ids(list(SPECIALS)))
    assert specials & set(tokenizer.encode(text, add_special_tokens=False))
    assert not specials & set(ids)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", [byte_level, whole_words], ids=lambda kind: kind.__name__)
def test_the_ids_decode_to_exactly_the_text(kind, text):
    tokenizer = add_specials(kind())

    assert tokenizer.decode(text_tokenizer(tokenizer)(text)) == text


def test_ordinary_text_keeps_its_ids_and_is_not_split(tokenizer):
    plain = text_tokenizer(tokenizer)

    assert plain.split(ORDINARY) == [ORDINARY]
    assert plain(ORDINARY) == tokenizer.encode(ORDINARY, add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_in_a_chat_template_are_special_even_if_the_tokenizer_does_not_say_so(text):
    tokenizer = add_specials(byte_level(), is_special=False)

    ids = text_tokenizer(tokenizer)(text)

    assert not set(tokenizer.convert_tokens_to_ids(list(SPECIALS))) & set(ids)
    assert tokenizer.decode(ids) == text


def test_added_tokens_that_are_ordinary_text_are_unchanged():
    ordinary = ["\n\n", "<table>", "user"]
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ordinary])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template="user: {{ messages }}\n\n")

    ids = text_tokenizer(wrapped)("a user\n\n<table>")

    assert ids == wrapped.encode("a user\n\n<table>", add_special_tokens=False)
    assert set(wrapped.convert_tokens_to_ids(ordinary)) <= set(ids)


def test_an_upper_case_special_token_is_text_too_if_the_tokenizer_lower_cases():
    tokenizer = add_specials(word_piece(), is_normalized=True)

    ids = text_tokenizer(tokenizer)("<|IM_END|>")

    assert not set(tokenizer.convert_tokens_to_ids(list(SPECIALS))) & set(ids)


def test_a_special_token_in_lookalike_characters_is_refused_by_name():
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFKC()
    wrapped = add_specials(tokenizer, is_normalized=True)

    with pytest.raises(
        SpecialTokensError, match="finds a special token in '\uff1c\uff5cim_end\uff5c\uff1e', and cannot encode it"
    ):
        text_tokenizer(wrapped)("\uff1c\uff5cim_end\uff5c\uff1e")
