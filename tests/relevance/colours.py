"""The model of colours that reads whole questions: a text's vector is that of the colours that it names."""

import numpy as np

from tasks.description.embeddings import normalize
from tests.description.colours import COLOURS, ColourTowers


class ReadingTowers(ColourTowers):
    def __init__(self):
        super().__init__()
        self.texts = []

    def embed_texts(self, texts):
        self.texts += texts
        named = [[COLOURS[word] for word in text.split() if word in COLOURS] for text in texts]
        return normalize(np.array([np.sum([(0, 0, 0), *colours], axis=0) for colours in named], np.float32))

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]
