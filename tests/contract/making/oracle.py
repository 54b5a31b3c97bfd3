"""The expected values: transformers' chat templates, tokenizer and greedy generation."""

import json
from pathlib import Path

import tokenizers
import torch
import transformers

torch.set_num_threads(1)  # the last digits of sums depend on the number of threads
NAME = f"oracle: transformers {transformers.__version__}"
SMALLEST_GAP = 1e-3


class Oracle:
    """transformers with the model of a folder."""

    def __init__(self, folder: Path):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model = model.eval()
        self.eos = set(model.generation_config.eos_token_id)

    def render(self, conversation: dict, **options) -> str:
        """Returns the prompt of a conversation in the contract's JSON form."""
        messages, tools, documents, arguments = plain(conversation)
        options.setdefault("add_generation_prompt", not options.get("continue_final_message", False))
        return self.tokenizer.apply_chat_template(
            messages, tools=tools, documents=documents, tokenize=False, **arguments, **options
        )

    def encode(self, text: str, special: bool = False) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=special)

    def encode_literally(self, text: str) -> list[int]:
        """Returns the ids of a text in which no added token is recognised."""
        plain = json.loads(self.tokenizer.backend_tokenizer.to_str()) | {
            "added_tokens": [],
            "post_processor": None,
        }
        return tokenizers.Tokenizer.from_str(json.dumps(plain)).encode(text, add_special_tokens=False).ids

    def offsets(self, text: str, special: bool = False) -> list[dict]:
        """Returns the position of each token, in bytes of UTF-8."""
        found = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=special).offsets
        place = [len(text[:at].encode()) for at in range(len(text) + 1)]
        return [{"start": place[start], "end": place[end]} for start, end in found]

    def decode(self, ids: list[int], skip_special: bool = False) -> str:
        return self.tokenizer.decode(
            ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )

    def logits(self, ids: list[int]) -> torch.Tensor:
        """Returns the logits after each id, [T] -> [T, V]."""
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].double()

    def greedy(self, ids: list[int], limit: int, change=lambda logits, output: logits, eos=None) -> list[int]:
        """Returns the ids of greedy decoding, the eos id included. `change` changes the logits of a step."""
        output = []
        eos = self.eos if eos is None else eos
        while len(output) < limit and not (output and output[-1] in eos):
            logits = change(self.logits(ids + output)[-1].clone(), output)
            best = torch.topk(logits, 2)
            gap = (best.values[0] - best.values[1]).item()
            assert gap > SMALLEST_GAP, f"the two largest logits differ by {gap}: choose another seed"
            output.append(int(best.indices[0]))
        return output


def plain(conversation: dict):
    """Returns messages, tools, documents and template arguments as transformers takes them."""
    messages = [message(given) for given in conversation.get("messages", [])]
    tools = [tool(given) for given in conversation.get("tools", [])] or None
    documents = [json.loads(given["documentJson"]) for given in conversation.get("documents", [])] or None
    return messages, tools, documents, json.loads(conversation.get("templateArgsJson", "{}"))


def message(given: dict) -> dict:
    result = {"role": given["role"]}
    if "text" in given:
        result["content"] = given["text"]
    elif "blocks" in given:
        result["content"] = [block(item) for item in given["blocks"].get("blocks", [])]
    for key, name in (
        ("reasoningContent", "reasoning_content"),
        ("toolCallId", "tool_call_id"),
        ("name", "name"),
    ):
        if key in given:
            result[name] = given[key]
    if given.get("toolCalls"):
        result["tool_calls"] = [call(item) for item in given["toolCalls"]]
    result |= json.loads(given.get("extraJson", "{}"))
    result.setdefault("content", None)
    return result


def call(given: dict) -> dict:
    head = {"id": given["id"]} if "id" in given else {}
    function = {"name": given["name"], "arguments": json.loads(given["argumentsJson"])}
    return {**head, "type": "function", "function": function}


def tool(given: dict) -> dict:
    if "toolJson" in given:
        return json.loads(given["toolJson"])
    function = given["function"]
    result = {"name": function["name"]}
    if "description" in function:
        result["description"] = function["description"]
    if "parametersJson" in function:
        result["parameters"] = json.loads(function["parametersJson"])
    return {"type": "function", "function": result}


def block(given: dict) -> dict:
    ((kind, value),) = given.items()
    if kind == "text":
        return {"type": "text", "text": value.get("text", "")}
    if kind == "otherJson":
        return json.loads(value)
    if kind == "toolUse":
        head = {"type": "tool_use"} | ({"id": value["id"]} if "id" in value else {})
        return head | {"name": value["name"], "input": json.loads(value.get("inputJson") or "{}")}
    if kind == "toolResult":
        head = {"type": "tool_result"} | ({"tool_use_id": value["toolUseId"]} if "toolUseId" in value else {})
        blocks = value.get("blocks")
        content = value.get("text") if blocks is None else [block(item) for item in blocks.get("blocks", [])]
        return head | {"content": content} | ({"is_error": value["isError"]} if "isError" in value else {})
    names = {"base64": "base64", "data": "base64", "location": "url", "attachmentId": "attachment_id"}
    source = {names[key]: text for key, text in value.items() if key in names}
    return {"type": kind} | source | ({"mime_type": value["mimeType"]} if "mimeType" in value else {})


def logprob(logits: torch.Tensor, id: int) -> float:
    return round(float(torch.log_softmax(logits, -1)[id]), 5)
