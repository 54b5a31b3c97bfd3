"""A server with the interface of SGLang's `/generate`, made from its published schema (sglang 0.5, `io_struct.py` and
`sampling_params.py`): SGLang itself needs a GPU. Tokens come from llama.cpp's server in the same process.

Arguments: MODEL MODE. MODE is `incremental` or `cumulative`: an event has the new tokens, or all.
"""

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import xllamacpp

REQUEST = {
    "input_ids", "stream", "sampling_params", "priority", "return_logprob", "top_logprobs_num", "logprob_start_len",
    "extra_key",
}
SAMPLING = {
    "max_new_tokens", "min_new_tokens", "stop_token_ids", "ignore_eos", "temperature", "top_k", "top_p", "min_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "sampling_seed", "skip_special_tokens",
    "no_stop_trim", "json_schema", "regex",
}
EOS = 2

model, mode = sys.argv[1], sys.argv[2]
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 2048
params.n_parallel = 1
params.cpuparams.n_threads = 2
params.warmup = False
engine = xllamacpp.Server(params)
llama = engine.listening_address


def ask(path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(llama + path, data, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def problem(body):
    sampling = body.get("sampling_params", {})
    for unknown in (set(body) - REQUEST) | (set(sampling) - SAMPLING):
        return f"unknown field {unknown}"
    if not 0 < sampling["repetition_penalty"] <= 2:
        return "repetition_penalty must be in (0, 2]"
    if sampling["top_k"] < 1 and sampling["top_k"] != -1:
        return "top_k must be -1 (disable) or at least 1"
    return None


def tokens(body):
    """Returns the output's ids, their log-probabilities, and the reason of its end."""
    sampling, ids, chosen = body["sampling_params"], list(body["input_ids"]), []
    most, ends = sampling["max_new_tokens"], set(sampling["stop_token_ids"])
    ends |= set() if sampling["ignore_eos"] else {EOS}
    while len(chosen) < most:
        early = len(chosen) < sampling["min_new_tokens"]
        ask_for = {"prompt": ids, "n_predict": 1 if early else most - len(chosen), "return_tokens": True}
        ask_for |= {"temperature": sampling["temperature"], "n_probs": max(body["top_logprobs_num"], 1)}
        ask_for["seed"] = (sampling["sampling_seed"] + len(ids)) % (1 << 31)
        ask_for["logit_bias"] = [[id, False] for id in ends] if early else []
        if "json_schema" in sampling:
            ask_for["json_schema"] = json.loads(sampling["json_schema"])
        if "regex" in sampling:
            ask_for["grammar"] = "%llguidance {}\nstart: /" + sampling["regex"].replace("/", "\\/") + "/"
        answer = ask("/completion", ask_for)
        reported = answer["completion_probabilities"]
        for at, id in enumerate(answer["tokens"]):
            chosen.append((id, reported[at] if at < len(reported) and reported[at]["id"] == id else None))
            ids.append(id)
            if id in ends:
                return chosen, {"type": "stop", "matched": id}
    return chosen, {"type": "length", "length": most}


def events(body):
    chosen, end = tokens(body)
    for at in range(1, len(chosen) + 1):
        first = at - 1 if mode == "incremental" else 0
        part = chosen[first:at]
        info = {"id": "x", "finish_reason": end if at == len(chosen) else None, "prompt_tokens": len(body["input_ids"]),
                "completion_tokens": at, "cached_tokens": 0}
        if body["return_logprob"]:
            info["output_token_logprobs"] = [[top["logprob"], id, None] for id, top in part if top]
            info["output_top_logprobs"] = [[[t["logprob"], t["id"], None] for t in top["top_logprobs"]] for _, top in part if top]
        yield {"text": None, "output_ids": [id for id, _ in part], "meta_info": info}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        loads = {"num_running_reqs": 0, "num_waiting_reqs": 0, "token_usage": 0.25, "max_total_num_tokens": 4096,
                 "max_running_requests": 4}
        pages = {
            "/ready": {},
            "/health": {},
            "/v1/models": {"data": [{"id": "m", "root": "m", "parent": None, "max_model_len": 2048}]},
            "/server_info": {"version": "0.5.23", "dtype": "float32", "quantization": None,
                             "incremental_streaming_output": mode == "incremental",
                             "enable_deterministic_inference": True},
            "/v1/loads": {"version": "0.5.23", "loads": [loads]},
        }
        found = pages.get(self.path)
        self.answer({"error": "not found"} if found is None else found, 404 if found is None else 200)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize":
            ids = ask("/tokenize", {"content": body["prompt"], "add_special": body["add_special_tokens"], "parse_special": True})
            self.answer({"tokens": ids["tokens"], "count": len(ids["tokens"]), "max_model_len": 2048})
        elif self.path == "/detokenize":
            self.answer({"text": ask("/detokenize", {"tokens": body["tokens"]})["content"]})
        elif self.path == "/generate" and problem(body):
            self.answer({"error": {"message": problem(body)}}, 400)
        elif self.path == "/generate":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for event in events(body):
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True
        else:
            self.answer({"error": "not found"}, 404)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("sglang-schema listening on", f"127.0.0.1:{server.server_port}", flush=True)
threading.Thread(target=server.serve_forever).start()
