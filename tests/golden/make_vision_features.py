#!/usr/bin/env python3
"""Writes transformers' image features for the cases of the vision oracle, as raw 32-bit floats.

    pip install torch==2.13.0 torchvision==0.28.0 transformers==5.23.0 pillow num2words
    python make_vision_features.py ORACLE OUT
    TANDEM_VISION_FEATURES=OUT cargo test -p tandem-tests-full engine::vision

ORACLE has `make_vision.py`, `models`, `images` and `goldens`. OUT receives, for each case with
images, `FAMILY/CASE.projected` and `FAMILY/CASE.deepstack_N`: the features of all image tokens in
order.
"""

import json
import sys
from pathlib import Path

import numpy
import torch


def features(make_vision, model, processor, messages, decoder, options):
    """Returns the features of a conversation, by their names in the goldens."""
    encoded = processor.apply_chat_template(
        make_vision.to_hf(messages, decoder),
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        add_generation_prompt=True,
        processor_kwargs=options or {},
    )
    names = ("pixel_values", "image_grid_thw", "image_sizes", "image_position_ids", "pixel_attention_mask")
    output = model.model.get_image_features(**{n: encoded[n] for n in names if n in encoded}, return_dict=True)
    found = {"projected": output.pooler_output}
    deep = getattr(output, "deepstack_features", None) or []
    return found | {f"deepstack_{i}": value for i, value in enumerate(deep)}


def rows(value):
    parts = value if isinstance(value, (list, tuple)) else [value]
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts]).float().numpy().astype("<f4")


def check(found, golden):
    flat = found.reshape(-1)[golden["index"]]
    if list(found.shape) != golden["shape"] or numpy.abs(flat - golden["value"]).max() > 1e-4:
        raise SystemExit("features differ from the golden")


def main():
    oracle, out = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(oracle))
    import make_vision

    torch.set_num_threads(1)
    decoder = make_vision.Decoder({path.name: path.read_bytes() for path in (oracle / "images").iterdir()})
    for folder in sorted((oracle / "models").iterdir()):
        cases = json.loads((oracle / "goldens" / f"{folder.name}.json").read_text())["cases"]
        processor, model = make_vision.load(folder)
        (out / folder.name).mkdir(parents=True, exist_ok=True)
        for name, case in cases.items():
            if "vision_features" not in case:
                continue
            options = case.get("processor_kwargs")
            with torch.no_grad():
                found = features(make_vision, model, processor, case["messages"], decoder, options)
            for part, value in found.items():
                check(rows(value), case["vision_features"][part])
                (out / folder.name / f"{name}.{part}").write_bytes(rows(value).tobytes())
        print(folder.name, len(cases))


main()
