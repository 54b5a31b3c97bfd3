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
    from making import details, generate, images, inferred, large, lifecycle, marked, model, parse, render, rules, task, texts, tls
    from making.oracle import Oracle

    shutil.rmtree(HERE / "model", ignore_errors=True)
    model.make(HERE / "model")
    model.make_long(HERE / "long", HERE / "model")
    model.make_long(HERE / "longest", HERE / "model", model.LONGEST_CONTEXT)
    lifecycle.make_large(HERE / "large")
    images.make_models(HERE / "vision", HERE / "marked")
    model.make_markup(HERE / "markup", HERE / "model")
    tls.make(HERE / "tls")
    oracle = Oracle(HERE / "model")
    areas = [area for module in (render, texts, parse, generate, task, rules, lifecycle, inferred) for area in module.make(oracle)]
    areas.append(images.make())
    by_name = {area.name: area for area in areas}
    rules.extend(by_name, oracle)
    large.extend(by_name, oracle)
    marked.extend(by_name["images"], HERE / "vision")
    details.extend(by_name, oracle)
    parse.extend(by_name["task"], oracle)
    parse.choose(by_name["task"], oracle)
    (HERE / "vectors").mkdir(exist_ok=True)
    for old in (HERE / "vectors").glob("*.json"):
        old.unlink()
    for area in areas:
        text = json.dumps(area.vectors, ensure_ascii=False, indent=1)
        (HERE / f"vectors/{area.name}.json").write_text(text + "\n", encoding="utf8")
    print(f"vectors: {sum(len(area.vectors) for area in areas)}")


if __name__ == "__main__":
    main()
