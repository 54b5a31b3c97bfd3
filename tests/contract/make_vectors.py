#!/usr/bin/env python3
"""Writes the model and the vectors of the contract.

    pip install -r requirements.txt
    python make_vectors.py

A second run writes the same bytes: nothing depends on the clock or on random numbers. The expected
values come from transformers, from the tokenizers library, or from the rule of the `.proto` that the
vector names. The services of this repository are not asked.
"""

import json
import shutil
from pathlib import Path

from making import contract

HERE = Path(__file__).parent


def main() -> None:
    contract.load()
    from making import generate, images, lifecycle, model, render, rules, task, texts, tls
    from making.oracle import Oracle

    shutil.rmtree(HERE / "model", ignore_errors=True)
    model.make(HERE / "model")
    model.make_long(HERE / "long", HERE / "model")
    lifecycle.make_large(HERE / "large")
    images.make_model(HERE / "vision")
    tls.make(HERE / "tls")
    oracle = Oracle(HERE / "model")
    areas = [area for module in (render, texts, generate, task, rules, lifecycle) for area in module.make(oracle)]
    areas.append(images.make())
    rules.extend({area.name: area for area in areas}, oracle)
    (HERE / "vectors").mkdir(exist_ok=True)
    for old in (HERE / "vectors").glob("*.json"):
        old.unlink()
    for area in areas:
        text = json.dumps(area.vectors, ensure_ascii=False, indent=1)
        (HERE / f"vectors/{area.name}.json").write_text(text + "\n", encoding="utf8")
    print(f"vectors: {sum(len(area.vectors) for area in areas)}")


if __name__ == "__main__":
    main()
