"""Training reaches both encoders, is the same for the same seed, and serves what it trains."""

import numpy as np
import pytest
import torch

from tasks.description.banks import ACTIVITIES, PLACES, read_bank
from tools.tiny_siglip.architecture import MAX_TOKENS, make_image_processor, make_tokenizer
from tools.tiny_siglip.pictures import ALL_CAPTIONS, draw_pictures
from tools.tiny_siglip.train import new_learner, train


@pytest.fixture(scope="module")
def learner():
    return new_learner()


def test_every_caption_and_every_text_of_the_shipped_banks_fits_the_text_encoder():
    tokenizer = make_tokenizer()

    texts = [*ALL_CAPTIONS, *read_bank(PLACES).texts, *read_bank(ACTIVITIES).texts]

    assert max(len(tokenizer(text)["input_ids"]) for text in texts) <= MAX_TOKENS


def test_any_text_is_encoded_and_decoded_again():
    tokenizer = make_tokenizer()

    assert tokenizer.decode(tokenizer("Ein grüner Kreis 🟢")["input_ids"]).strip() == "ein grüner kreis 🟢"


def test_pictures_are_normalised_as_by_the_shipped_processor(learner):
    images = draw_pictures(np.random.default_rng(0), 3).images
    processed = make_image_processor()(images=list(images), return_tensors="pt")

    with torch.no_grad():
        direct = learner.model.get_image_features(**processed).pooler_output
        assert torch.allclose(learner.embed_pictures(images), direct, atol=1e-5)


def test_the_loss_reaches_both_encoder_the_scale_and_the_bias(learner):
    model = learner.model
    parts = [
        model.vision_model.embeddings.patch_embedding.weight,
        model.text_model.embeddings.token_embedding.weight,
        model.logit_scale,
        model.logit_bias,
    ]

    gradients = torch.autograd.grad(learner.loss(draw_pictures(np.random.default_rng(0), 8)), parts)

    assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_the_same_seed_trains_the_same_weights_and_another_does_not():
    def trained(seed):
        learner = new_learner(seed)
        train(learner, steps=2, seed=seed, batch=4)
        return learner.model.state_dict()

    first, again, other = trained(1), trained(1), trained(2)

    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
