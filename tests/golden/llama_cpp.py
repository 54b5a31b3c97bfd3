"""A llama.cpp server for GGUF files, as the scripts that compare with it start it.

    pip install xllamacpp==2026.10.11549
"""

import json
import urllib.request

import xllamacpp


def serve(model, mmproj=None):
    """Starts a server for a GGUF file, and the file of its tower if there is one."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    if mmproj:
        params.mmproj.path, params.mmproj_use_gpu = str(mmproj), False
    params.n_ctx, params.n_parallel, params.warmup, params.fit_params, params.swa_full = 512, 1, False, False, True
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.verbosity = -1
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.port = 18790
    return xllamacpp.Server(params)


def call(address, path, request=None):
    """Sends a request to the server and returns its answer."""
    body = None if request is None else json.dumps(request).encode()
    sent = urllib.request.Request(address + path, data=body, headers={"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(sent))
