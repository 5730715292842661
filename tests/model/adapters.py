"""LoRA adapters of a model, as PEFT saves them, and the same weights merged into the model."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np

LANGUAGE = ("q_proj", "v_proj", "o_proj")
RANK, ALPHA = 4, 16
_TYPES = {"F32": np.float32, "F16": np.float16}


def read_weights(path):
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    return {
        name: np.frombuffer(
            data[start + each["data_offsets"][0] : start + each["data_offsets"][1]], _TYPES[each["dtype"]]
        )
        .reshape(each["shape"])
        .astype(np.float32)
        for name, each in header.items()
        if name != "__metadata__"
    }


def write_weights(path, weights):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in weights.items():
        added = np.ascontiguousarray(values, np.float32).tobytes()
        offsets = [len(data), len(data) + len(added)]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": offsets}
        data += added
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def _in_memory(name):
    """Return the name that a weight has in transformers' model, as which PEFT knows it."""
    return f"model.{name}" if name.startswith("visual.") else name.replace("model.", "model.language_model.", 1)


def make_adapter(folder, model, *, of=LANGUAGE, **changed):
    """Write an adapter with random weights of the modules whose names end as `of`; return its folder."""
    rng, low_rank = np.random.default_rng(7), {}
    for name, values in read_weights(model / "model.safetensors").items():
        if name.removesuffix(".weight").endswith(of):
            module = f"base_model.model.{_in_memory(name.removesuffix('.weight'))}"
            low_rank[f"{module}.lora_A.weight"] = rng.normal(0, 0.2, (RANK, values.shape[1]))
            low_rank[f"{module}.lora_B.weight"] = rng.normal(0, 0.2, (values.shape[0], RANK))
    folder.mkdir()
    write_weights(folder / "adapter_model.safetensors", low_rank)
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(model),
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": sorted({name.rsplit(".", 1)[-1] for name in of}),
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | changed))
    return folder


def merge(adapter, folder):
    """Copy the adapter's model with the adapter added to its weights."""
    model = Path(json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"])
    shutil.copytree(model, folder)
    weights, low_rank = read_weights(folder / "model.safetensors"), read_weights(adapter / "adapter_model.safetensors")
    for name in low_rank:
        if name.endswith(".lora_A.weight"):
            [module] = (
                each for each in weights if name == f"base_model.model.{_in_memory(each)}".replace(".w", ".lora_A.w")
            )
            weights[module] += ALPHA / RANK * low_rank[name.replace("lora_A", "lora_B")] @ low_rank[name]
    write_weights(folder / "model.safetensors", weights)
    return folder
