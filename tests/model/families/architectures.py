"""The smallest model of each family, with random weights, and the processor and chat template that it is served with.

Templates are those of the published models, shortened to what a question on a video needs.
"""

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    Glm4vImageProcessor,
    Glm4vProcessor,
    GotOcr2ImageProcessor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    Qwen2_5_VLProcessor,
    Qwen2_5OmniConfig,
    Qwen2_5OmniProcessor,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    WhisperFeatureExtractor,
)
from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor

from tools.tiny_model.architecture import make_model, make_tokenizer

SIDE_PX = 56
PATCH_PX = 14

_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}VIDEO{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_QWEN_TEMPLATE = _CHATML.replace("VIDEO", "<|vision_start|><|video_pad|><|vision_end|>")
_INTERNVL_TEMPLATE = _CHATML.replace("VIDEO", "{{ '<video>\n' }}")
_GLM_TEMPLATE = (
    "[gMASK]<sop>{% for message in messages %}{{ '<|' + message['role'] + '|>\n' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<|begin_of_video|><|video|><|end_of_video|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
# Finds parts by their type: a system prompt given as plain text would vanish.
_LLAVA_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' }}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'video') %}<video>{% endfor %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}{{ '\n' + part['text'] }}"
    "{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_IMAGES_TEMPLATE = _CHATML.replace("'video' %}VIDEO", "'image' %}<image>")


# What a template looks like that takes texts alone.
def tokenizer_with(*specials, **named):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    tokenizer.add_special_tokens({"additional_special_tokens": [*specials, *named.values()]})
    if named:
        tokenizer._set_model_specific_special_tokens(special_tokens=named)
    return tokenizer


def language(tokenizer, **changed):
    """Give the text model that all families share but for their `changed`."""
    return {
        "vocab_size": (len(tokenizer) + 63) // 64 * 64,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "bos_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    } | changed


def rotary(section, **more):
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section, **more}


def tokens_of(tokenizer, **named):
    return {f"{name}_token_id": tokenizer.convert_tokens_to_ids(text) for name, text in named.items()}


def qwen_tokens(tokenizer):
    return tokens_of(
        tokenizer,
        image="<|image_pad|>",
        video="<|video_pad|>",
        vision_start="<|vision_start|>",
        vision_end="<|vision_end|>",
    )


def make_qwen2_vl():
    tokenizer = tokenizer_with()
    config = Qwen2VLConfig(
        text_config=language(tokenizer, rope_parameters=rotary([4, 6, 6])),
        vision_config={"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        **qwen_tokens(tokenizer),
    )
    size = {"shortest_edge": SIDE_PX**2, "longest_edge": 4 * SIDE_PX**2}
    processor = Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=size),
        chat_template=_QWEN_TEMPLATE,
    )
    return Qwen2VLForConditionalGeneration(config), processor


def make_qwen2_5_vl():
    tokenizer = make_tokenizer()
    size = {"shortest_edge": SIDE_PX**2, "longest_edge": 4 * SIDE_PX**2}
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=size),
        chat_template=_QWEN_TEMPLATE,
    )
    return make_model(tokenizer, hidden=64, layers=1, vision_hidden=64, vision_depth=1), processor


def make_qwen2_5_omni():
    named = {
        "image_token": "<|IMAGE|>",
        "audio_token": "<|AUDIO|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    }
    tokenizer = tokenizer_with(**named)
    token = tokenizer.convert_tokens_to_ids
    config = Qwen2_5OmniConfig(
        thinker_config={
            "text_config": language(
                tokenizer, rope_parameters=rotary([4, 6, 6]), max_position_embeddings=4096, num_hidden_layers=2
            ),
            "vision_config": {
                "depth": 1,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_heads": 2,
                "out_hidden_size": 64,
                "window_size": 112,
                "fullatt_block_indexes": [0],
                "tokens_per_second": 25,
            },
            "audio_config": {
                "encoder_layers": 1,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 128,
                "d_model": 64,
                "output_dim": 64,
            },
            "audio_token_index": token("<|AUDIO|>"),
            "image_token_index": token("<|IMAGE|>"),
            "video_token_index": token("<|VIDEO|>"),
            "audio_start_token_id": token("<|audio_bos|>"),
            "audio_end_token_id": token("<|audio_eos|>"),
            "vision_start_token_id": token("<|vision_bos|>"),
            "vision_end_token_id": token("<|vision_eos|>"),
            "user_token_id": tokenizer.encode("user")[0],
        },
        enable_audio_output=False,
        architectures=["Qwen2_5OmniModel"],
    )
    size = {"shortest_edge": SIDE_PX**2, "longest_edge": 4 * SIDE_PX**2}
    processor = Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        video_processor=Qwen2VLVideoProcessor(size=size),
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
        tokenizer=tokenizer,
        chat_template=_CHATML.replace("VIDEO", "<|vision_bos|><|VIDEO|><|vision_eos|>"),
    )
    return Thinker(config), processor


class Thinker(Qwen2_5OmniThinkerForConditionalGeneration):
    """What listens, looks and writes of Qwen2.5-Omni, saved as the published files do, without what speaks."""

    def __init__(self, config):
        super().__init__(config.thinker_config)
        self.whole = config
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and "embed_tokens" not in name:
                # With transformers' 0.02, what is heard would hardly change an answer at this width.
                torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)

    def save_pretrained(self, folder):
        self.whole.save_pretrained(folder)
        weights = {f"thinker.{name}": tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def make_qwen3_vl():
    tokenizer = tokenizer_with()
    config = Qwen3VLConfig(
        text_config=language(tokenizer, head_dim=32, rope_parameters=rotary([6, 5, 5], mrope_interleaved=True)),
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        **qwen_tokens(tokenizer),
    )
    # Of all frames together, unlike the older ones: sixteen frames of 64x64.
    size = {"shortest_edge": 32 * 32, "longest_edge": 16 * 64 * 64}
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size, patch_size=16),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=size),
        chat_template=_QWEN_TEMPLATE,
    )
    return Qwen3VLForConditionalGeneration(config), processor


def make_glm4v():
    tokenizer = tokenizer_with(
        "[gMASK]",
        "<sop>",
        "<|image|>",
        "<|video|>",
        "<|begin_of_image|>",
        "<|end_of_image|>",
        "<|begin_of_video|>",
        "<|end_of_video|>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
    )
    config = Glm4vConfig(
        text_config=language(tokenizer, rope_parameters=rotary([4, 2, 2], partial_rotary_factor=0.5)),
        vision_config={
            "depth": 1,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 64,
            "image_size": SIDE_PX,
        },
        **tokens_of(
            tokenizer,
            image="<|image|>",
            video="<|video|>",
            image_start="<|begin_of_image|>",
            image_end="<|end_of_image|>",
            video_start="<|begin_of_video|>",
            video_end="<|end_of_video|>",
        ),
    )
    size = {"shortest_edge": SIDE_PX**2, "longest_edge": 16 * SIDE_PX**2}
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(size=size),
        chat_template=_GLM_TEMPLATE,
    )
    return Glm4vForConditionalGeneration(config), processor


def make_llava_onevision():
    tokenizer = tokenizer_with("<image>", "<video>")
    config = LlavaOnevisionConfig(
        text_config=language(tokenizer, model_type="qwen2"),
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": SIDE_PX,
            "patch_size": PATCH_PX,
            "vision_use_head": False,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=[[SIDE_PX, SIDE_PX]],
    )
    size = {"height": SIDE_PX, "width": SIDE_PX}
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=[[SIDE_PX, SIDE_PX]]),
        tokenizer=tokenizer,
        video_processor=LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=(SIDE_PX // PATCH_PX) ** 2,
        vision_feature_select_strategy="full",
        chat_template=_LLAVA_TEMPLATE,
    )
    return LlavaOnevisionForConditionalGeneration(config), processor


def make_internvl():
    tokenizer = tokenizer_with(
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    config = InternVLConfig(
        text_config=language(tokenizer, model_type="qwen2"),
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": [SIDE_PX, SIDE_PX],
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=(SIDE_PX // PATCH_PX // 2) ** 2,
    )
    size = {"height": SIDE_PX, "width": SIDE_PX}
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=size),
        image_seq_length=(SIDE_PX // PATCH_PX // 2) ** 2,
        chat_template=_INTERNVL_TEMPLATE,
    )
    return InternVLForConditionalGeneration(config), processor


def make_idefics3():
    grid = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    tokenizer = tokenizer_with("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *grid)
    image = tokenizer.convert_tokens_to_ids("<image>")
    config = Idefics3Config(
        text_config=language(tokenizer, model_type="llama"),
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": SIDE_PX,
            "patch_size": PATCH_PX,
        },
        scale_factor=2,
        image_token_id=image,
        pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    )
    size = {"longest_edge": SIDE_PX}
    processor = Idefics3Processor(
        image_processor=Idefics3ImageProcessor(size=size, max_image_size=size, do_image_splitting=False),
        tokenizer=tokenizer,
        image_seq_len=(SIDE_PX // PATCH_PX // 2) ** 2,
        chat_template=_IMAGES_TEMPLATE,
    )
    return Idefics3ForConditionalGeneration(config), processor


MAKERS = {
    "qwen2_vl": make_qwen2_vl,
    "qwen2_5_vl": make_qwen2_5_vl,
    "qwen3_vl": make_qwen3_vl,
    "glm4v": make_glm4v,
    "llava_onevision": make_llava_onevision,
    "internvl": make_internvl,
}


IMAGES_ONLY = {"idefics3": make_idefics3}
HEARING = {"qwen2_5_omni": make_qwen2_5_omni}  # asked in live sessions alone


def save(family, folder):
    torch.manual_seed(0)
    model, processor = (MAKERS | IMAGES_ONLY | HEARING)[family]()
    model.to(torch.float32).save_pretrained(folder)
    processor.save_pretrained(folder)
    if family == "llava_onevision":
        rename_vision_tower(folder / "model.safetensors")


def rename_vision_tower(path):
    """Name weights as the published files do, which vLLM reads; transformers writes them otherwise since 5."""
    weights = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor for name, tensor in load_file(path).items()
    }
    save_file(weights, path, metadata={"format": "pt"})
