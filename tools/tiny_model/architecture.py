"""The tiny Qwen2.5-VL: tokenizer, processor and model, created from scratch."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from tasks.demo.actors import SIDE_PX
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompts.prompt import render_question
from tools.tiny_model.scenes import SCENE_QUESTIONS

PATCH_PX = 14
MERGE = 2
TEMPORAL_PATCH = 2
TOKENS_PER_SECOND = 2
MAX_PROMPT_TOKENS = 2048
_FRAMES = 16  # of every training clip

_SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# The newline of the generation prompt is inside an expression, because Jinja strips the last newline of a template.
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] in ('video', 'video_url') %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CORPUS = (
    *(
        render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
        for prompt, choices in SCENE_QUESTIONS.values()
    ),
    "You are a helpful assistant. system user assistant",
    "What happens in the video? Who is in it, where are they, and what do they do first, then and last?",
    "Is there a person, an animal, a car or a ball? yes no Yes No",
    "".join(f" {letter}" for letter in ascii_uppercase),
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the demo's questions; any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS * 20, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIALS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",  # noqa: S106 - no password
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=list(_SPECIALS),
        model_max_length=MAX_PROMPT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = _CHAT_TEMPLATE
    return wrapped


def make_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLProcessor:
    """Make the processor; frames of SIDE_PX squared need no resize."""
    area = SIDE_PX * SIDE_PX
    common: dict[str, Any] = {
        "patch_size": PATCH_PX,
        "temporal_patch_size": TEMPORAL_PATCH,
        "merge_size": MERGE,
        "size": {"shortest_edge": area, "longest_edge": area},
    }
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**common),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**common, num_frames=_FRAMES),
        chat_template=_CHAT_TEMPLATE,
    )


def make_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden: int = 128,
    layers: int = 4,
    vision_hidden: int = 128,
    vision_depth: int = 3,
) -> Qwen2_5_VLForConditionalGeneration:
    """Make the model with random weights, scaled to its width."""
    token = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": (len(tokenizer) + 63) // 64 * 64,
            "hidden_size": hidden,
            "intermediate_size": hidden * 3,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 32,
            "num_key_value_heads": hidden // 64,
            "max_position_embeddings": MAX_PROMPT_TOKENS,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "bos_token_id": token("<|endoftext|>"),
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
        },
        vision_config={
            "depth": vision_depth,
            "hidden_size": vision_hidden,
            "intermediate_size": vision_hidden * 3,
            "num_heads": vision_hidden // 32,
            "out_hidden_size": hidden,
            "patch_size": PATCH_PX,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": TEMPORAL_PATCH,
            "window_size": PATCH_PX * MERGE * 4,
            "fullatt_block_indexes": [vision_depth - 1],
            "tokens_per_second": TOKENS_PER_SECOND,
            "in_channels": 3,
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    model = Qwen2_5_VLForConditionalGeneration(config).to(torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            # transformers' 0.02 is far too small at this width.
            deviation = 0.05 if "embed_tokens" in name else parameter[0].numel() ** -0.5
            torch.nn.init.normal_(parameter, std=deviation)
    return model
