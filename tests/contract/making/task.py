"""Vectors of TaskService, and of what every method has: credentials, limits, overload, drain."""

from .contract import Area, error, invalid, repeated
from .generate import CONTROL, GENERATE, GREEDY, LOADED, Run
from .oracle import NAME, Oracle
from .render import RENDER, blocks, image_block, talk, user

TASK = "task.v1.TaskService/RunTask"
TOKEN = {"authorization": "Bearer vectors-token"}
TRACES = {"valid": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "malformed": "00-0af7-b7ad-zz"}


def make(oracle: Oracle) -> list[Area]:
    return [tasks(oracle), credentials(oracle), encrypted(oracle), limits(oracle), unavailable(oracle)]


def tasks(oracle: Oracle) -> Area:
    area = Area("task")
    conversations = {
        "one_message": talk(user("hi")),
        "two_turns": talk(user("a"), {"role": "assistant", "text": "b"}, user("c")),
        "letters": talk(user("größer 漢字 😀")),
        "system": talk({"role": "system", "text": "Be brief."}, user("a")),
        "tools": talk(
            user("2+2?"),
            tools=[{"function": {"name": "add", "parametersJson": '{"type": "object", "z": 1.0}'}}],
        ),
        "template_args": talk(user("a"), templateArgsJson='{"extra": {"10": 1.0, "2": 3}}'),
        "empty_text": talk(user("")),
        "null_content": talk(
            {"role": "assistant", "toolCalls": [{"name": "f", "argumentsJson": "{}"}]},
            {"role": "tool", "text": "4"},
        ),
    }
    for name, conversation in conversations.items():
        run = Run(oracle, oracle.render(conversation), 10)
        area.add(
            name,
            "task",
            TASK,
            {"conversation": conversation, "sampling": GREEDY, "stop": {"maxNewTokens": 10}},
            answered(run),
            NAME,
        )
    run = Run(oracle, oracle.render(talk(user("hi"))), 10)
    request = {"conversation": talk(user("hi")), "sampling": GREEDY, "stop": {"maxNewTokens": 10}}
    area.add("model_by_id", "task", TASK, request | {"model": "model"}, answered(run), NAME)
    area.add(
        "n_may_be_one",
        "task",
        TASK,
        request | {"sampling": {"temperature": 0, "n": 1}},
        answered(run),
        "task.proto RunTaskRequest.sampling: n must be 1",
    )
    area.add(
        "token_ids", "task", TASK, request | {"returnOptions": {"tokenIds": True}}, answered(run, True), NAME
    )
    area.add(
        "request_id",
        "task",
        TASK,
        request,
        answered(run) | {"headers": {"x-request-id": "vector-3"}},
        "proto/README.md: each response has the caller's x-request-id",
        metadata={"x-request-id": "vector-3"},
    )
    for name, value in TRACES.items():
        area.add(
            f"traceparent/{name}",
            "task",
            TASK,
            request,
            answered(run),
            "proto/README.md: traceparent is passed on, and a malformed one is ignored",
            metadata={"traceparent": value},
        )
    area.add(
        "rendered_has_no_rejected_adapters",
        "task",
        TASK,
        request,
        answered(run) | {"absent": ["events[0].rendered.resolution.rejected"]},
        "task.proto Rendered.resolution: `rejected` is empty",
    )
    area.add(
        "cancelled_in_the_middle",
        "long_task",
        TASK,
        {
            "conversation": talk(user("hi")),
            "sampling": GREEDY,
            "stop": {"maxNewTokens": 60000, "ignoreEos": True},
        },
        {"error": {"code": "CANCELLED"}},
        "task.proto RunTask: dropping the stream cancels the generation",
        cancel_after=3,
    )
    spec = {"stopStrings": ["two"]}
    forced = request | {"grammar": {"choice": {"values": ["one two three"]}}, "outputSpec": spec}
    expected = [
        {"rendered": {"outputSpec": spec}},
        {"accepted": {}},
        {"delta": {"text": "one "}},
        {
            "finished": {
                "message": {"role": "assistant", "text": "one "},
                "finish": {"reason": "FINISH_REASON_STOP", "stopString": "two"},
            }
        },
    ]
    area.add(
        "output_spec_replaces_the_one_of_render",
        "task",
        TASK,
        forced,
        {"events": expected},
        "task.proto RunTaskRequest.output_spec: replaces the one from Render as a whole",
    )
    for value in (0, 2, 17):
        area.add(
            f"several_outputs/{value}",
            "task",
            TASK,
            request | {"sampling": {"n": value}},
            invalid("sampling.n"),
            "task.proto RunTaskRequest.sampling: any other n is INVALID_ARGUMENT (field sampling.n)",
        )
    area.add(
        "invalid_temperature",
        "task",
        TASK,
        request | {"sampling": {"temperature": -1}},
        invalid("sampling.temperature"),
        "task.proto RunTask: the errors of GenerateService.Generate",
    )
    area.add(
        "invalid_role",
        "task",
        TASK,
        request | {"conversation": talk({"text": "a"})},
        invalid("conversation.messages[0].role"),
        "task.proto RunTask: the errors of RenderService.Render",
    )
    area.add(
        "invalid_stop_string",
        "task",
        TASK,
        request | {"stop": {"stopStrings": [""]}},
        invalid("stop.stop_strings[0]"),
        "task.proto RunTask: the errors of GenerateService.Generate",
    )
    area.add(
        "template_raised",
        "task",
        TASK,
        request | {"conversation": talk({"role": "forbidden", "text": "a"})},
        error("INVALID_ARGUMENT", "TEMPLATE_RAISED"),
        "task.proto RunTask: the errors of RenderService.Render",
    )
    area.add(
        "model_not_found",
        "task",
        TASK,
        request | {"model": "none"},
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "task.proto RunTask: the errors of RenderService.Render",
    )
    area.add(
        "images_not_supported",
        "task",
        TASK,
        request | {"conversation": talk(blocks(image_block(base64="QUJD")))},
        error("FAILED_PRECONDITION", "IMAGES_NOT_SUPPORTED"),
        "task.proto RunTask: IMAGES_NOT_SUPPORTED",
    )
    area.add(
        "prompt_too_long",
        "task",
        TASK,
        request | {"conversation": talk(user("a b c " * 100))},
        error("INVALID_ARGUMENT", "PROMPT_TOO_LONG"),
        "task.proto RunTask: the errors of GenerateService.Generate",
    )
    area.add(
        "no_generation_service",
        "render",
        TASK,
        request,
        error("FAILED_PRECONDITION", "NO_GENERATION_SERVICE"),
        "task.proto RunTask: NO_GENERATION_SERVICE",
    )
    area.add(
        "no_replica",
        "alone",
        TASK,
        request,
        error("UNAVAILABLE", "GENERATION_UNAVAILABLE", retry=True),
        "task.proto RunTask: GENERATION_UNAVAILABLE, with a retry delay: no replica serves the model",
    )
    area.add(
        "no_replica/health",
        "alone",
        "grpc.health.v1.Health/Check",
        {"service": "tandem.task.v1.TaskService"},
        {"response": {"status": "NOT_SERVING"}},
        "proto/README.md: health is NOT_SERVING for TaskService while no task can run",
    )
    return area


def answered(run: Run, with_ids=False) -> dict:
    text = run.text()
    finish = {key: value for key, value in run.finished()["finished"].items() if key != "outputIndex"}
    finished = {"message": {"role": "assistant", "text": text}, "finish": finish, "usage": run.usage()}
    parts = [
        {"rendered": {"resolution": {"adapter": "tokenizer-template"}}},
        {"accepted": {"promptTokens": len(run.ids)}},
    ]
    return {"events": [*parts, *deltas(run, with_ids), {"finished": finished}]}


def deltas(run: Run, with_ids: bool) -> list[dict]:
    """Returns the answer's joined deltas: those outside of reasoning and those inside, the first one first.

    The markers are the template's <think> and </think>, which belong to the reasoning.
    """
    start, end = run.oracle.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    ids, inside = {}, False
    for id in run.output:
        inside = inside or id == start
        ids.setdefault(inside, []).append(id)
        inside = inside and id != end
    result = []
    for reasoning, some in ids.items():
        text = run.oracle.decode([id for id in some if id not in run.oracle.eos], True)
        delta = {"text": text, "reasoning": reasoning} | ({"tokenIds": some} if with_ids else {})
        result += [{"delta": delta}] if text or with_ids else []
    return result


def credentials(oracle: Oracle) -> Area:
    area = Area("credentials")
    prompt = {"response": {"prompt": {"text": oracle.render(talk(user("hi")))}}}
    request = {"conversation": talk(user("hi"))}
    missing, wrong = error("UNAUTHENTICATED", "CREDENTIALS_MISSING"), error(
        "UNAUTHENTICATED", "CREDENTIALS_INVALID"
    )
    listed = "proto/ERRORS.md CREDENTIALS_MISSING, CREDENTIALS_INVALID"
    for server, method, given, good in (
        ("tokens", RENDER, request, prompt),
        ("tokens", TASK, request, error("FAILED_PRECONDITION", "NO_GENERATION_SERVICE")),
    ):
        name = method.rpartition("/")[2]
        area.add(f"{name}/right", server, method, given, good, listed, metadata=TOKEN)
        area.add(
            f"{name}/second_token",
            server,
            method,
            given,
            good,
            listed,
            metadata={"authorization": "Bearer second-token"},
        )
        area.add(f"{name}/missing", server, method, given, missing, listed)
        area.add(
            f"{name}/wrong",
            server,
            method,
            given,
            wrong,
            listed,
            metadata={"authorization": "Bearer vectors-toke"},
        )
        area.add(
            f"{name}/longer",
            server,
            method,
            given,
            wrong,
            listed,
            metadata={"authorization": "Bearer vectors-token1"},
        )
        area.add(
            f"{name}/expired",
            server,
            method,
            given,
            wrong,
            listed,
            metadata={"authorization": "Bearer expired-token"},
        )
        area.add(
            f"{name}/no_bearer",
            server,
            method,
            given,
            missing,
            "proto/ERRORS.md CREDENTIALS_MISSING: the call has no bearer token",
            metadata={"authorization": "Basic dmVjdG9yczp0b2tlbg=="},
        )
    area.add(
        "health_needs_none",
        "tokens",
        "grpc.health.v1.Health/Check",
        {},
        {"response": {"status": "SERVING"}},
        "proto/README.md: health checks need no token",
    )
    return area


def encrypted(oracle: Oracle) -> Area:
    area = Area("tls")
    request = {"conversation": talk(user("hi"))}
    prompt = {"response": {"prompt": {"text": oracle.render(talk(user("hi")))}}}
    rule = "proto/README.md: with --tls-cert, a service serves TLS only"
    area.add("answer", "tls", RENDER, request, prompt, rule, metadata=TOKEN)
    area.add(
        "invalid_role",
        "tls",
        RENDER,
        {"conversation": talk({"text": "a"})},
        invalid("conversation.messages[0].role"),
        rule,
        metadata=TOKEN,
    )
    area.add("missing_token", "tls", RENDER, request, error("UNAUTHENTICATED", "CREDENTIALS_MISSING"), rule)
    area.add(
        "task", "tls", TASK, request, error("FAILED_PRECONDITION", "NO_GENERATION_SERVICE"), rule, metadata=TOKEN
    )
    area.add("health", "tls", "grpc.health.v1.Health/Check", {}, {"response": {"status": "SERVING"}}, rule)
    return area


def limits(oracle: Oracle) -> Area:
    area = Area("limits")
    too_large = error("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")
    rule = "proto/ERRORS.md MESSAGE_TOO_LARGE: more bytes than --max-message-bytes"
    largest = {"conversation": talk(user("a" * (4096 - 16)))}
    prompt = oracle.render(largest["conversation"])
    area.add("largest_message", "limits", RENDER, largest, {"response": {"prompt": {"text": prompt}}}, rule)
    area.add("message_too_large", "limits", RENDER, {"conversation": talk(user("a" * 4097))}, too_large, rule)
    area.add("task_too_large", "limits", TASK, {"conversation": talk(user("a" * 4097))}, too_large, rule)
    area.add(
        "too_many_values",
        "render",
        RENDER,
        {"conversation": talk(user("a"), templateArgsJson=repeated("0,", 131072, '{"extra": [', "0]}"))},
        too_large,
        "proto/ERRORS.md MESSAGE_TOO_LARGE: more than 131,072 JSON values in one conversation",
    )
    return area


def unavailable(oracle: Oracle) -> Area:
    """Servers that are busy or end. `hold` and `signal` of servers.json bring them there."""
    area = Area("unavailable")
    request = {"prompt": "a", "sampling": GREEDY, "stop": {"maxNewTokens": 1}}
    pushback = {"headers": {"grpc-retry-pushback-ms": "*"}}
    area.add(
        "overloaded",
        "overloaded",
        GENERATE,
        request,
        error("RESOURCE_EXHAUSTED", "OVERLOADED", retry=True) | pushback,
        "proto/ERRORS.md OVERLOADED; proto/README.md: an error with RetryInfo also has grpc-retry-pushback-ms",
    )
    area.add(
        "overloaded/health",
        "overloaded",
        "grpc.health.v1.Health/Check",
        {},
        {"response": {"status": "SERVING"}},
        "--max-calls: health checks are not counted",
    )
    area.add(
        "deadline_in_queue",
        "full",
        GENERATE,
        request,
        error("DEADLINE_EXCEEDED", "DEADLINE_IN_QUEUE"),
        "proto/ERRORS.md DEADLINE_IN_QUEUE; proto/README.md: a service ends a stream before the deadline that it received",
        deadline_ms=500,
        eventually=True,  # a busy machine may deliver the end later than the client's own deadline
    )
    area.add(
        "queue_full",
        "queue_full",
        GENERATE,
        request,
        error("RESOURCE_EXHAUSTED", "QUEUE_FULL", retry=True) | pushback,
        "generate.proto Generate: RESOURCE_EXHAUSTED, with a retry delay: QUEUE_FULL",
    )
    area.add(
        "queue_full/model",
        "queue_full",
        LOADED,
        {},
        {"response": {"model": {"id": "slow"}}},
        "proto/ERRORS.md QUEUE_FULL: only requests to generate wait in the queue",
    )
    endless = {"prompt": "a", "sampling": GREEDY, "stop": {"maxNewTokens": 60000, "ignoreEos": True}}
    late = [
        {"accepted": {}},
        {"delta": {}},
        {"finished": {"reason": "FINISH_REASON_DEADLINE"}},
        {"summary": {}},
    ]
    area.add(
        "deadline_during_generation",
        "slow",
        GENERATE,
        endless,
        {"events": late},
        "generate.proto FINISH_REASON_DEADLINE: each service ends its stream before the deadline that it received",
        deadline_ms=1500,
        eventually=True,  # a busy machine may deliver the end later than the client's own deadline
    )
    area.add(
        "shutting_down/health",
        "ending",
        "grpc.health.v1.Health/Check",
        {},
        {"response": {"status": "NOT_SERVING"}},
        "proto/CHANGELOG.md: after SIGTERM, health is NOT_SERVING at once",
    )
    run = Run(oracle, "a", 1)
    area.add(
        "shutting_down/still_accepts",
        "ending",
        GENERATE,
        request,
        run.events(),
        "proto/CHANGELOG.md: the service still accepts calls for --drain-delay-seconds",
    )
    area.add(
        "draining/request",
        "draining",
        f"{CONTROL}/Drain",
        {},
        {"response": {}},
        "control.proto Drain: returns at once",
    )
    area.add(
        "draining/state",
        "draining",
        f"{CONTROL}/GetServer",
        {},
        {"response": {"state": "SERVER_STATE_DRAINING"}},
        "control.proto SERVER_STATE_DRAINING: the server rejects new requests",
    )
    area.add(
        "draining/load",
        "draining",
        f"{CONTROL}/GetLoad",
        {},
        {"response": {"running": 1, "queued": 0}},
        "control.proto Drain: running requests may finish, and this service answers until then",
        eventually=True,  # the counts may be those before the held stream started
    )
    area.add(
        "draining/flush",
        "draining",
        f"{CONTROL}/FlushPrefixCache",
        {},
        {"response": {"flushedBlocks": 0}},
        "control.proto Drain: this service answers until the last request has finished",
    )
    return area
