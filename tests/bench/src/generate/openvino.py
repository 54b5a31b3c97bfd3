"""Measures OpenVINO GenAI, which reads the GGUF itself. Variants: the type that it computes in, f32 or bf16."""

import peer

STEP = 8192  # Tokens per step, so that every prompt is read in one.


class OpenVino(peer.WarmedUp):
    def __init__(self, path, threads, precision):
        from importlib.metadata import version

        from openvino_genai import py_openvino_genai as genai
        import numpy
        import openvino

        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = STEP
        scheduler.max_num_seqs = 64
        scheduler.cache_size = 2  # GiB
        properties = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
        self.pipeline = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)
        self.numpy, self.openvino, self.genai = numpy, openvino, genai
        self.requests = 0
        core = openvino.Core()
        kept = core.get_property("CPU", "KV_CACHE_PRECISION").to_string()
        group = core.get_property("CPU", "DYNAMIC_QUANTIZATION_GROUP_SIZE")
        self.version = (
            f"openvino-genai {version('openvino-genai')}; computes in {precision}, activations of products in 8 bits "
            f"in groups of {group}, keys and values in {kept}"
        )

    def generate(self, prompts, tokens):
        """Yields when all prompts have one token more."""
        sampling = self.genai.GenerationConfig()
        sampling.max_new_tokens, sampling.ignore_eos, sampling.do_sample = tokens, True, False
        running = []
        for ids in prompts:
            self.requests += 1
            ids = self.openvino.Tensor(self.numpy.array([ids], "int64"))
            running.append(self.pipeline.add_request(self.requests, ids, sampling))
        counts, shared = [0] * len(prompts), 0
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for at, request in enumerate(running):
                while request.can_read():
                    counts[at] += sum(len(output.generated_ids) for output in request.read().values())
            while shared < min(counts):
                shared += 1
                yield


peer.serve(OpenVino)
