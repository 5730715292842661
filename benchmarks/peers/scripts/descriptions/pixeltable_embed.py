"""The functions of Pixeltable's index, which must be in a module of their own."""

import os
from functools import cache

import PIL.Image
import pixeltable as pxt
from pixeltable.func import Batch

from benchmarks.peers.scripts.descriptions.siglip import Siglip

SIZE = 128


@cache
def model() -> Siglip:
    return Siglip(os.environ["MODEL"])


@pxt.udf(batch_size=64)
def embed_image(images: Batch[PIL.Image.Image]) -> Batch[pxt.Array[(SIZE,), pxt.Float]]:
    return list(model().images(images))


@pxt.udf(batch_size=64)
def embed_text(texts: Batch[str]) -> Batch[pxt.Array[(SIZE,), pxt.Float]]:
    return list(model().texts(texts))
