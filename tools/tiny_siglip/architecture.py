"""The tiny SigLIP: tokenizer, image processor and model, created from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, SiglipConfig, SiglipImageProcessor, SiglipModel

from tasks.demo.actors import SIDE_PX
from tools.tiny_siglip.pictures import ALL_CAPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TOKENS = 16
WIDTH = 128
_PATCH_PX = 14
_VOCABULARY = 768
_PAD = "<pad>"
_HALF = [0.5, 0.5, 0.5]
_BANKS = Path(__file__).parents[2] / "tasks" / "description" / "banks"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the captions and the included banks; any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, initial_alphabet=alphabet, special_tokens=[_PAD], show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def make_image_processor() -> SiglipImageProcessor:
    """Make the image processor; pictures of SIDE_PX squared need no resize."""
    return SiglipImageProcessor(size={"height": SIDE_PX, "width": SIDE_PX}, image_mean=_HALF, image_std=_HALF)


def make_model(tokenizer: PreTrainedTokenizerFast) -> SiglipModel:
    """Make the model with random weights, about 1.1 million; the scale and bias start as in SigLIP's training."""
    encoder = {"hidden_size": WIDTH, "intermediate_size": WIDTH * 3, "num_attention_heads": WIDTH // 32}
    config = SiglipConfig(
        text_config=encoder
        | {
            "vocab_size": (len(tokenizer) + 63) // 64 * 64,
            "num_hidden_layers": 2,
            "max_position_embeddings": MAX_TOKENS,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
            "eos_token_id": tokenizer.pad_token_id,
        },
        vision_config=encoder | {"num_hidden_layers": 3, "image_size": SIDE_PX, "patch_size": _PATCH_PX},
    )
    model = SiglipModel(config)
    model.logit_scale.data.fill_(2.3026)  # exp(2.3026) = 10
    model.logit_bias.data.fill_(-10.0)
    return model


def _corpus() -> Iterator[str]:
    for caption in ALL_CAPTIONS:
        yield from [caption] * 4
    for bank in sorted(_BANKS.glob("*.txt")):
        yield from bank.read_text().splitlines() * 20
