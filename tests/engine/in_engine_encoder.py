"""Vectors of real architectures with random weights are those of transformers called directly."""

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EncoderConfig
from tasks.embedding.bank_file import encoder_versions
from tasks.embedding.encoder import EncoderProcess

WORDS = ["<pad>", "<eos>", "a", "red", "blue", "square", "circle", "on", "the", "grass", "<bos>"]
TEXTS = ["a red square", "the blue circle on the grass", "grass"]
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = TOWER | {"vocab_size": 16, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 10}
SIGLIP = {"eos_token_id": 1, "bos_token_id": 10}


def siglip():
    vision = TOWER | {"image_size": 28, "patch_size": 14}
    return transformers.SiglipModel(
        transformers.SiglipConfig(text_config=TEXT | SIGLIP, vision_config=vision)
    ), transformers.SiglipImageProcessor(size={"height": 28, "width": 28})


def siglip2():
    vision = TOWER | {"num_patches": 4, "patch_size": 14}
    return transformers.Siglip2Model(
        transformers.Siglip2Config(text_config=TEXT | SIGLIP, vision_config=vision)
    ), transformers.Siglip2ImageProcessor(patch_size=14, max_num_patches=4)


def siglip2_fixed():
    """A SigLIP 2 of a fixed size is of the type siglip, with a bilinear resize."""
    vision = TOWER | {"image_size": 28, "patch_size": 14}
    return transformers.SiglipModel(
        transformers.SiglipConfig(text_config=TEXT | SIGLIP, vision_config=vision)
    ), transformers.SiglipImageProcessor(size={"height": 28, "width": 28}, resample=2)


def clip():
    vision = TOWER | {"image_size": 28, "patch_size": 14}
    config = transformers.CLIPConfig(text_config=TEXT | {"eos_token_id": 1}, vision_config=vision, projection_dim=24)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    return transformers.CLIPModel(config), processor


def make_tokenizer():
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


@pytest.fixture(
    scope="module",
    params=[siglip, siglip2_fixed, siglip2, clip],
    ids=["siglip", "siglip2-fixed", "siglip2-naflex", "clip"],
)
def model(request, tmp_path_factory):
    torch.manual_seed(0)
    model, processor = request.param()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    folder = tmp_path_factory.mktemp("model")
    for part in (model.eval(), processor, make_tokenizer()):
        part.save_pretrained(folder)
    return folder, model, processor


@pytest.fixture(scope="module")
def encoder(model, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "encoder.log"
    config = EncoderConfig(model=str(model[0]), batch_frames=5)
    with EncoderProcess(config, log_path=log, start_timeout_s=300) as encoder:
        yield encoder


def open_encoder(folder):
    return EncoderProcess(EncoderConfig(model=str(folder)), log_path=folder / "encoder.log", start_timeout_s=300)


def cosines(found, expected):
    expected = torch.nn.functional.normalize(expected, dim=-1).numpy()
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    return (found * expected).sum(axis=1)


def test_vectors_of_frames_are_those_of_transformers(model, encoder):
    _, direct, processor = model
    rng = np.random.default_rng(0)
    # Of the model's size, and larger; smooth, as pictures are.
    videos = [rng.integers(0, 256, (3, 28, 28, 3), np.uint8), smooth(rng, 6, 61, 61), smooth(rng, 2, 28, 28)]

    found = encoder.embed_images(videos)

    inputs = processor(images=[frame for video in videos for frame in video], return_tensors="pt")
    with torch.no_grad():
        expected = direct.get_image_features(**inputs).pooler_output
    assert cosines(found, expected).min() >= 0.9999


def smooth(rng, count, height, width):
    small = torch.from_numpy(rng.integers(0, 256, (count, 3, 7, 7)).astype(np.float32))
    large = torch.nn.functional.interpolate(small, (height, width), mode="bicubic").clamp(0, 255)
    return large.permute(0, 2, 3, 1).to(torch.uint8).numpy()


def test_large_frames_are_resized_a_few_at_a_time_and_give_the_same_vectors(encoder):
    frames = smooth(np.random.default_rng(2), 13, 1080, 1920)

    apart = [encoder.embed_images([frame[None]]) for frame in frames[[0, 12]]]

    assert encoder.embed_images([frames])[[0, 12]] == pytest.approx(np.concatenate(apart), abs=1e-5)


@pytest.mark.parametrize("size_px", [(40, 70), (70, 40), (28, 200), (61, 60)], ids=str)
def test_frames_that_are_not_square_are_prepared_by_the_models_own_processor(model, encoder, size_px):
    """Squeezed for SigLIP, cut for CLIP, and with their aspect kept for SigLIP 2 with NaFlex."""
    folder, direct, _ = model
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    frames = smooth(np.random.default_rng(1), 4, *size_px)
    with torch.no_grad():
        inputs = processor(images=[Image.fromarray(frame) for frame in frames], return_tensors="pt")
        expected = direct.get_image_features(**inputs).pooler_output

    assert cosines(encoder.embed_images([frames]), expected).min() >= 0.999


def test_vectors_of_texts_are_those_of_transformers_in_lower_case_and_without_a_mask(model, encoder):
    folder, direct, _ = model
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXTS, padding="max_length", max_length=16, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = direct.get_text_features(input_ids=ids).pooler_output

    assert cosines(encoder.embed_texts([text.upper() for text in TEXTS]).vectors, expected).min() >= 0.9999


def test_tokens_are_counted_and_the_limit_is_reported(encoder):
    assert encoder.embed_texts([*TEXTS, "a " * 40]).tokens == (4, 7, 2, 41)
    assert encoder.info().max_tokens == 16


def test_versions_are_those_that_are_known_before_the_model_is_loaded(encoder):
    assert encoder.info().versions == encoder_versions(None)


def test_scale_and_bias_are_the_models(model, encoder):
    info, (_, direct, _) = encoder.info(), model

    assert info.scale == pytest.approx(direct.logit_scale.exp().item())
    assert info.bias == (direct.logit_bias.item() if hasattr(direct, "logit_bias") else None)
    assert (info.size_px, info.dtype, info.dimensions) == (28, "float32", 24 if info.bias is None else 32)


def test_a_model_without_a_text_encoder_is_refused(tmp_path):
    vision = transformers.SiglipVisionConfig(**TOWER, image_size=28, patch_size=14)
    transformers.SiglipVisionModel(vision).save_pretrained(tmp_path)

    with open_encoder(tmp_path) as encoder, pytest.raises(ModelError, match="has no text encoder"):
        encoder.info()


def test_a_model_of_another_kind_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')

    with open_encoder(tmp_path) as encoder, pytest.raises(ModelError, match="type bert; the types that are known are"):
        encoder.info()


def test_a_processor_that_does_not_fit_the_image_encoder_is_refused(tmp_path):
    model, _ = siglip()
    for part in (model, transformers.SiglipImageProcessor(size={"height": 42, "width": 42}), make_tokenizer()):
        part.save_pretrained(tmp_path)

    with open_encoder(tmp_path) as encoder, pytest.raises(ModelError, match="does not fit its image encoder"):
        encoder.info()


def test_weights_that_would_be_unpickled_are_refused(tmp_path):
    model, processor = siglip()
    for part in (model.config, processor, make_tokenizer()):
        part.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")

    with open_encoder(tmp_path) as encoder, pytest.raises(ModelError, match="safetensors"):
        encoder.info()
