"""Serves a model with llama.cpp's own HTTP server until it is killed. Arguments: MODEL PORT SLOTS KEY CONTEXT; port 0 is a free one."""

import sys
import time

import xllamacpp

model, port, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = int(sys.argv[5]) * slots
params.n_parallel = slots
params.cpuparams.n_threads = 2
params.endpoint_metrics = True
params.endpoint_slots = True
params.warmup = False
params.api_keys = [sys.argv[4]] if sys.argv[4] else []
server = xllamacpp.Server(params)
print("llama-server listening on", server.listening_address.removeprefix("http://"), flush=True)
while True:
    time.sleep(3600)
