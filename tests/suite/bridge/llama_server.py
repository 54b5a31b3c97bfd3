"""Serves a model with llama.cpp's own HTTP server until its parent has ended. Arguments: MODEL PORT SLOTS KEY CONTEXT; port 0 is a free one."""

import os
import sys
import time

import xllamacpp

model, port, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parent = os.getppid()
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
while os.getppid() == parent:
    time.sleep(0.5)
