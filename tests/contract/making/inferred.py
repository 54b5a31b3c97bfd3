"""Vectors of a model's inferred parts: the output spec, capabilities, template arguments. And of RunTask's `rendered`."""

from .contract import Area
from .generate import GREEDY, Run
from .oracle import NAME, Oracle
from .render import RENDER, sha256, talk, user
from .task import TASK, answered
from .texts import REGISTRY, VALIDATE


def make(oracle: Oracle) -> list[Area]:
    area = Area("inferred")
    eos, start, end = oracle.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<think>", "</think>"])
    other = oracle.tokenizer.convert_tokens_to_ids("</s>")
    area.add(
        "reasoning/tokens",
        "inferred",
        RENDER,
        {"model": "thinking", "conversation": talk(user("a"))},
        {
            "response": {
                "outputSpec": {
                    "eosTokenIds": sorted([other, eos]),
                    "reasoning": {"startTokenIds": [start], "endTokenIds": [end]},
                    "extraction": {"stripReasoning": True, "cutHead": "assistant\n"},
                }
            },
            "absent": ["outputSpec.reasoning.startStrings", "outputSpec.specialTokenClasses"],
        },
        "output_spec.proto ReasoningMarkers: the markers that enclose the model's reasoning, here tokens",
    )
    area.add(
        "reasoning/strings",
        "inferred",
        RENDER,
        {"model": "spelled", "conversation": talk(user("a"))},
        {
            "response": {
                "outputSpec": {
                    "eosTokenIds": [2],
                    "specialTokenClasses": [
                        {"name": "tool_call", "tokenIds": [3, 4], "action": "SPECIAL_TOKEN_ACTION_PASS"}
                    ],
                    "reasoning": {"startStrings": ["[THINK]"], "endStrings": ["[/THINK]"]},
                    "extraction": {"stripReasoning": True},
                }
            },
            "absent": ["outputSpec.reasoning.startTokenIds", "outputSpec.reasoning.endTokenIds"],
        },
        "output_spec.proto OutputSpec: the tokenizer has tokens of calls, and none of the reasoning's markers",
    )
    area.add(
        "template_arguments",
        "inferred",
        f"{REGISTRY}/GetModel",
        {"model": "thinking"},
        {
            "response": {
                "model": {
                    "templateArguments": [
                        {"name": "closing", "takesAnyText": True, "source": "FACT_SOURCE_PROBE"},
                        {
                            "name": "enable_thinking",
                            "valuesJson": ["false", "true"],
                            "defaultJson": "true",
                            "isThinking": True,
                            "source": "FACT_SOURCE_PROBE",
                        },
                    ]
                }
            }
        },
        "registry.proto ModelInfo.template_arguments: arguments that change the prompt, by name",
    )
    area.add(
        "capabilities",
        "render",
        VALIDATE,
        {"template": "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<think></think>{% endfor %}"},
        {
            "response": {
                "template": {
                    "capabilities": ["CAPABILITY_SUPPORTS_SYSTEM_ROLE", "CAPABILITY_SUPPORTS_REASONING"]
                }
            }
        },
        "render.proto TemplateInfo.capabilities: the template writes system messages and reasoning's markers",
    )
    conversation = talk(user("hi"), templateArgsJson='{"unread": 1}')
    prompt = oracle.render(conversation)
    hashes = {
        "promptSha256": sha256(prompt),
        "templateSha256": sha256(oracle.tokenizer.chat_template["default"]),
        "adapter": "tokenizer-template",
    }
    warnings = [{"code": "WARNING_CODE_TEMPLATE_ARG_UNKNOWN", "path": "conversation.template_args_json"}]
    answer = answered(Run(oracle, prompt, 1))
    answer["events"][0]["rendered"] |= {"fingerprint": hashes, "warnings": warnings}
    area.add(
        "task/fingerprint_and_warnings",
        "task",
        TASK,
        {"conversation": conversation, "sampling": GREEDY, "stop": {"maxNewTokens": 1}},
        answer,
        f"{NAME}; task.proto Rendered: the warnings and the fingerprint of Render",
    )
    return [area]
