"""An image-text model by transformers, and tags of videos by their frames' vectors.

https://huggingface.co/docs/transformers/model_doc/siglip
"""

import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer


class Siglip:
    def __init__(self, folder: str):
        self.model = AutoModel.from_pretrained(folder).eval()
        self.processor = AutoImageProcessor.from_pretrained(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def images(self, images):
        pixels = self.processor(images=list(images), return_tensors="pt")
        return self.normalized(self.model.get_image_features(**pixels))

    @torch.inference_mode()
    def texts(self, texts):
        tokens = self.tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt")
        return self.normalized(self.model.get_text_features(input_ids=tokens["input_ids"]))

    def normalized(self, found):
        return torch.nn.functional.normalize(found.pooler_output, dim=-1).numpy()

    def tag(self, vectors, texts):
        """Return the text that fits a video best, by the mean of its frames' vectors."""
        return texts[int((self.texts(texts) @ vectors.mean(axis=0)).argmax())]
