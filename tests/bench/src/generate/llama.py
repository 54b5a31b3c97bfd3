"""Measures llama.cpp.

Variants: default; plain, without the buffers in which it repacks weights (for AMX among others); ik, its fork
ik_llama.cpp.
"""

import ctypes
import sys

import peer


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class Llama:
    def __init__(self, path, threads, variant):
        package = self.load()
        import numpy

        self.numpy, self.threads = numpy, threads
        self.quiet = LOG(lambda *_: None)  # Kept: ctypes frees it otherwise.
        self.api.llama_log_set(self.quiet, ctypes.c_void_p(0))
        self.api.llama_backend_init()
        params = self.api.llama_model_default_params()
        self.set_model(params, variant)
        self.model = self.api.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError("llama.cpp cannot load the model")
        self.vocabulary = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))
        self.version = f"{package}; {self.api.llama_print_system_info().decode()}"
        self.context, self.shape = None, None

    def load(self):
        """Imports the library, and returns the name and version of its package."""
        import llama_cpp

        self.api = llama_cpp
        return f"llama-cpp-python {llama_cpp.__version__}"

    def set_model(self, params, variant):
        params.use_extra_bufts = variant == "default"

    def set_context(self, params, sequences, outputs):
        params.n_outputs_max, params.no_perf = outputs, True

    def make_context(self, sequences, length, batch, outputs):
        """A context for this shape; the last one if it is of the same."""
        shape = (sequences, length, batch, outputs)
        if shape == self.shape:
            return
        if self.context:
            self.api.llama_free(self.context)
        params = self.api.llama_context_default_params()
        params.n_ctx, params.n_seq_max = sequences * -(-length // 256) * 256, sequences
        params.n_batch = batch
        params.n_threads = params.n_threads_batch = self.threads
        self.set_context(params, sequences, outputs)
        self.context, self.shape = self.api.llama_init_from_model(self.model, params), shape
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")

    def clear(self):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), False)

    def start(self, prompts, tokens):
        count, length = len(prompts), len(prompts[0])
        self.make_context(count, length + tokens, count * length, count)
        prompt = Batch(self, count * length)
        for sequence, ids in enumerate(prompts):
            at = slice(sequence * length, (sequence + 1) * length)
            prompt.fill(at, ids, range(length), sequence)
            prompt.wanted[at.stop - 1] = 1
        step = Batch(self, count)
        for sequence in range(count):
            step.fill(slice(sequence, sequence + 1), [0], [0], sequence)
        step.wanted[:] = 1
        prompt.decode(min(512, count * length))  # So that its memory is there.
        self.clear()
        yield
        step.ids[:] = prompt.decode(count * length).argmax(1)
        yield
        for position in range(length, length + tokens - 1):
            step.positions[:] = position
            step.ids[:] = step.decode(count).argmax(1)
            yield
        self.clear()

    def score(self, ids):
        self.make_context(1, 512, 512, 512)
        batch = Batch(self, len(ids))
        batch.fill(slice(0, len(ids)), ids, range(len(ids)), 0)
        batch.wanted[:] = 1
        logits = batch.decode(len(ids))[:-1].astype("float64")
        self.clear()
        top = logits.max(1, keepdims=True)
        logprobs = logits - top - self.numpy.log(self.numpy.exp(logits - top).sum(1, keepdims=True))
        return [row[id] for row, id in zip(logprobs, ids[1:])], logits.argmax(1).tolist()


class Fork(Llama):
    """ik_llama.cpp, which has an older interface, and repacks no weights unless it is asked to."""

    def load(self):
        from importlib.metadata import version

        from ik_llama_cpp import _ctypes_api as api

        # Functions that the package does not declare.
        api.llama_log_set, api.llama_print_system_info = api._lib.llama_log_set, api._lib.llama_print_system_info
        api.llama_print_system_info.restype = ctypes.c_char_p
        api.llama_get_logits = api._lib.llama_get_logits
        api.llama_get_logits.argtypes, api.llama_get_logits.restype = [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)
        self.api = api
        return f"ik-llama-cpp-python {version('ik-llama-cpp-python')}"

    def set_model(self, params, variant):
        pass

    def set_context(self, params, sequences, outputs):
        params.flash_attn = sequences == 1  # Of several, it aborts: "GGML_ASSERT(S > 0)".

    def clear(self):
        self.api.llama_kv_cache_clear(self.context)


class Batch:
    """llama.cpp's batch, as arrays."""

    def __init__(self, llama, size):
        view = llama.numpy.ctypeslib.as_array
        self.llama, self.raw = llama, llama.api.llama_batch_init(size, 0, 1)
        self.ids, self.positions = view(self.raw.token, (size,)), view(self.raw.pos, (size,))
        self.wanted = view(self.raw.logits, (size,))
        self.wanted[:] = 0

    def __del__(self):
        self.llama.api.llama_batch_free(self.raw)

    def fill(self, at, ids, positions, sequence):
        self.ids[at], self.positions[at] = ids, positions
        for token in range(at.start, at.stop):
            self.raw.n_seq_id[token] = 1
            self.raw.seq_id[token][0] = sequence

    def decode(self, size):
        """The logits of the tokens that want them, one row each, of the first `size` tokens."""
        self.raw.n_tokens = size
        status = self.llama.api.llama_decode(self.llama.context, self.raw)
        if status:
            raise RuntimeError(f"llama_decode gives {status}")
        rows = int(self.wanted[:size].sum())
        if not rows:
            return None
        pointer = self.llama.api.llama_get_logits(self.llama.context)
        return self.llama.numpy.ctypeslib.as_array(pointer, (rows, self.llama.vocabulary))


peer.serve(Fork if sys.argv[3] == "ik" else Llama)
