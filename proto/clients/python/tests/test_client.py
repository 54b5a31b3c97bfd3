"""The blocking client against running services."""

import json
import threading
import time
import unittest
from dataclasses import dataclass, field
from typing import List, Literal, Optional

import grpc
import services

from tandem import InvalidRequest, StrictError, Tandem, TandemError
from tandem.generate.v1 import control_pb2

CASE = services.CASES[0]
GREEDY = {"sampling": {"temperature": 0}, "stop": {"max_new_tokens": 16}}
LONG = {"stop": {"max_new_tokens": 8000, "ignore_eos": True}}


def running():
    """Returns the number of outputs that gen-svc generates."""
    with grpc.insecure_channel(services.control_address()) as channel:
        path, response = "/tandem.generate.v1.ControlService/GetLoad", control_pb2.GetLoadResponse
        method = channel.unary_unary(path, control_pb2.GetLoadRequest.SerializeToString, response.FromString)
        return method(control_pb2.GetLoadRequest()).running


def wait_until_running(count):
    """Returns when gen-svc generates this number of outputs."""
    while running() != count:
        threading.Event().wait(0.01)


class AClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.render, cls.generate = Tandem(services.rendering()), Tandem(services.generation())
        cls.addClassCleanup(cls.render.close)
        cls.addClassCleanup(cls.generate.close)

    def test_renders_as_transformers(self):
        for case in services.CASES:
            rendered = self.render.render(case["messages"], return_token_ids=True)
            self.assertEqual(rendered.prompt.text, case["prompt"])
            self.assertEqual(list(rendered.prompt.token_ids), case["prompt_ids"])

    def test_renders_a_batch_with_a_failure(self):
        requests = [{"messages": CASE["messages"]}, {"messages": [], "model": "none"}]
        good, bad = self.render.batch_render(requests)
        self.assertEqual(good.prompt.text, CASE["prompt"])
        self.assertEqual((bad.reason, bad.field), ("MODEL_NOT_FOUND", "requests[1].model"))

    def test_names_the_invalid_request_of_a_batch(self):
        with self.assertRaises(InvalidRequest) as caught:
            self.render.batch_render([{"messages": []}, {"messages": [1]}])
        self.assertEqual(caught.exception.field, "requests[1].messages[0]")

    def test_tokenizes(self):
        ids = self.render.tokenize(CASE["prompt"]).token_ids
        self.assertEqual(list(ids), CASE["prompt_ids"])
        self.assertEqual(self.render.detokenize(ids), CASE["prompt"])

    def test_describes_models_and_health(self):
        (listed,) = self.render.models()
        self.assertEqual(self.render.model(listed.id), listed)
        self.assertEqual(self.generate.generation_model().tokenizer_sha256, listed.tokenizer_sha256)
        self.assertEqual(self.render.health("tandem.task.v1.TaskService"), "SERVING")
        self.assertEqual(self.generate.health(), "SERVING")

    def test_streams_the_tokens_of_transformers(self):
        options = {"return_options": {"token_ids": True}, **GREEDY}
        with self.render.run(CASE["messages"], **options) as answer:
            deltas = list(answer.deltas())
        self.assertEqual([i for delta in deltas for i in delta.token_ids], CASE["greedy_ids"][:16])
        self.assertEqual(answer.finish_reason, "LENGTH")
        self.assertEqual(answer.totals.usage.prompt_tokens, len(CASE["prompt_ids"]))
        self.assertEqual(answer.message, {"role": "assistant", "content": "".join(delta.text for delta in deltas)})

    def test_continues_a_conversation(self):
        first = self.render.run(CASE["messages"], **GREEDY)
        text = first.text()
        self.assertTrue(CASE["greedy_text"].startswith(text) and text)
        turn = [*CASE["messages"], first.message, {"role": "user", "content": "Why?"}]
        self.assertIn(f"<|im_start|>assistant\n{text}<|im_end|>", self.render.render(turn).prompt.text)

    def test_generates_from_text_ids_and_a_rendered_conversation(self):
        rendered = self.render.render(CASE["messages"])
        with_ids = self.render.render(CASE["messages"], return_token_ids=True)
        prompts = [CASE["prompt"], CASE["prompt_ids"], rendered, with_ids]
        texts = {self.generate.generate(prompt, **GREEDY).text() for prompt in prompts}
        self.assertEqual(texts, {self.render.run(CASE["messages"], **GREEDY).text()})

    def test_generates_several_outputs(self):
        answer = self.generate.generate("Once", sampling={"n": 2, "seed": 1}, stop={"max_new_tokens": 4})
        self.assertEqual({delta.output_index for delta in answer.deltas()}, {0, 1})
        self.assertEqual((set(answer.finishes), answer.totals.seed), ({0, 1}, 1))

    def test_follows_a_json_schema_of_a_dict(self):
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
        grammar = {"json_schema": {**schema, "additionalProperties": False}}
        text = self.render.run(CASE["messages"], grammar=grammar, sampling={"temperature": 0}).text()
        self.assertRegex(text, r'^\s*\{\s*"a"\s*:\s*(true|false)\s*\}\s*$')

    def test_follows_the_schema_of_a_class(self):
        @dataclass
        class Review:
            good: bool
            size: Literal["s", "m"]
            stars: Optional[int]
            words: List[Literal["a", "b"]] = field(default_factory=list)

        answer = self.render.run(
            CASE["messages"], grammar=Review, sampling={"temperature": 0}, stop={"max_new_tokens": 200}
        )
        review = Review(**json.loads(answer.text()))
        self.assertIn(review.good, (True, False))
        self.assertIn(review.size, ("s", "m"))

    def test_follows_a_json_schema_without_white_space(self):
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
        grammar = {"json_schema": {**schema, "additionalProperties": False}, "whitespace": "none"}
        self.assertRegex(self.render.run(CASE["messages"], grammar=grammar).text(), r'^{"a":(true|false)}$')

    def test_cancels_at_the_end_of_a_block(self):
        with self.render.run(CASE["messages"], **LONG) as answer:
            self.assertTrue(next(iter(answer)))
            wait_until_running(1)
        wait_until_running(0)
        self.assertEqual(answer.finish_reason, "CANCELLED")

    def test_ends_the_iteration_when_another_thread_cancels(self):
        answer = self.render.run(CASE["messages"], **LONG)
        read = []
        for text in answer:
            read.append(text)
            if len(read) == 3:
                cancelling = threading.Thread(target=answer.cancel)
                cancelling.start()
                cancelling.join()
        self.assertEqual((answer.finish_reason, answer.text()), ("CANCELLED", ""))
        self.assertEqual(answer.message, {"role": "assistant", "content": "".join(read)})
        wait_until_running(0)

    def test_keeps_the_text_of_a_cancelled_answer(self):
        answer = self.render.run(CASE["messages"], **LONG)
        threading.Timer(0.5, answer.cancel).start()
        self.assertEqual(answer.text(), answer.message["content"])
        self.assertEqual((answer.finish_reason, answer.totals), ("CANCELLED", None))
        never = self.render.run(CASE["messages"], **LONG)
        never.cancel()
        self.assertEqual((never.text(), never.finish_reason), ("", "CANCELLED"))

    def test_does_not_cancel_a_complete_answer(self):
        with self.render.run(CASE["messages"], **GREEDY) as answer:
            answer.text()
        self.assertEqual(answer.finish_reason, "LENGTH")

    def test_has_reasoning_and_content_apart(self):
        markers = {"start_strings": ["<think>"], "end_strings": ["</think>"]}
        grammar = {"regex": "<think>\nSo be it\\.\n</think>\n\nYes\\."}
        answer = self.render.run(CASE["messages"], grammar=grammar, output_spec={"reasoning": markers})
        self.assertEqual(answer.text(), "\n\nYes.")
        expected = {"role": "assistant", "content": "Yes.", "reasoning_content": "So be it."}
        self.assertEqual(answer.message, expected)

    def test_cancels_when_a_loop_is_left(self):
        for _ in self.render.run(CASE["messages"], **LONG):
            break
        wait_until_running(0)

    def test_gets_the_end_that_a_deadline_causes(self):
        for attempt in range(5):  # a busy machine may deliver the end later than the client's own deadline
            answer = self.render.run(CASE["messages"], timeout=3, **LONG)
            try:
                self.assertTrue(answer.text())
                break
            except TandemError as error:
                self.assertEqual(error.code, grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertEqual(answer.finish_reason, "DEADLINE", attempt)

    def test_receives_more_than_four_megabytes(self):
        picture = {"type": "image", "data": bytes(6 << 20)}
        rendered = self.render.render([{"role": "user", "content": [picture]}])
        self.assertGreater(rendered.ByteSize(), 8 << 20)


class AFailure(unittest.TestCase):
    def failure(self, call, **settings):
        with Tandem(services.rendering(), **settings) as client, self.assertRaises(TandemError) as caught:
            call(client)
        return caught.exception

    def test_has_reason_field_and_request_id(self):
        error = self.failure(lambda client: client.render([{"role": ""}], request_id="my-request"))
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"))
        self.assertEqual((error.field, error.request_id), ("conversation.messages[0].role", "my-request"))
        self.assertIsNone(error.retry_delay)

    def test_of_a_stream_has_them_too(self):
        error = self.failure(lambda client: client.run(CASE["messages"], sampling={"temperature": -1}).text())
        self.assertEqual((error.reason, error.field), ("INVALID_REQUEST", "sampling.temperature"))
        self.assertRegex(error.request_id, "^[0-9a-f]{32}$")

    def test_names_the_missing_resource(self):
        error = self.failure(lambda client: client.model("none"))
        self.assertEqual((error.reason, error.resource), ("MODEL_NOT_FOUND", ("model", "none")))

    def test_of_the_transport_has_no_reason(self):
        with Tandem("127.0.0.1:1", retries=0) as client, self.assertRaises(TandemError) as caught:
            client.models()
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.UNAVAILABLE, ""))


class ARetry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        generation = f"http://{services.generation()}"
        arguments = ("--models", services.MODEL, "--generate", generation, "--max-calls", "1")
        cls.address = services.start("render-svc", *arguments, name="one-call")

    def test_follows_the_delay_of_the_service(self):
        with Tandem(self.address, retries=100) as client, client.run(CASE["messages"], **LONG) as first:
            next(iter(first))
            waiting = client.run(CASE["messages"], **GREEDY)
            threading.Timer(0.5, first.cancel).start()
            self.assertTrue(waiting.text())
            self.assertEqual(len(client.models()), 1)

    def test_is_possible_until_the_first_output(self):
        later = services.free_address()
        arguments = ("--models", services.MODEL, "--generate", f"http://{later}")
        address = services.start("render-svc", *arguments, name="alone")
        kinds = []
        with Tandem(address, retries=100) as client, client.run(CASE["messages"], **GREEDY) as answer:
            for event in answer.events():
                kinds.append(event.WhichOneof("event"))
                # The second `rendered` shows that an attempt failed after its first event.
                if kinds[-1] == "rendered" and kinds.count("rendered") == 2:
                    services.start("gen-svc", "--model", services.MODEL, name="late", listen=later)
        self.assertGreater(kinds.count("rendered"), 1)
        self.assertEqual(answer.finish_reason, "LENGTH")

    def test_is_bounded_by_its_number_and_by_the_deadline(self):
        with Tandem(self.address, retries=0) as client, client.run(CASE["messages"], **LONG) as first:
            next(iter(first))
            for call in (client.models, client.run(CASE["messages"]).text):
                with self.assertRaises(TandemError) as caught:
                    call()
                self.assertEqual(caught.exception.reason, "OVERLOADED")
                self.assertGreater(caught.exception.retry_delay, 0)
            with Tandem(self.address, retries=10**6) as patient, self.assertRaises(TandemError):
                patient.models(timeout=1)


class AWarning(unittest.TestCase):
    TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}

    def test_is_logged_once_per_code_and_client(self):
        tools = {"tools": [self.TOOL], **GREEDY}
        for _ in range(2):
            with Tandem(services.rendering()) as client, self.assertLogs("tandem", "WARNING") as logged:
                client.render(CASE["messages"], tools=[self.TOOL])
                client.batch_render([{"messages": CASE["messages"], "tools": [self.TOOL]}])
                self.assertEqual(
                    [w.path for w in self.warned(client.run(CASE["messages"], **tools))], ["conversation.tools"]
                )
            self.assertEqual(len(logged.output), 1)
            self.assertRegex(logged.output[0], "TOOLS_IGNORED: conversation.tools: ")

    def warned(self, answer):
        self.assertTrue(answer.text())
        return answer.warnings

    def test_of_an_output_is_one_too(self):
        markers = {"reasoning": {"start_strings": ["<think>"], "end_strings": ["</think>"]}}
        inside = {"output_spec": markers, "grammar": {"regex": "a"}, "stop": {"max_new_tokens": 2}}
        with Tandem(services.generation()) as client, self.assertLogs("tandem", "WARNING") as logged:
            self.assertEqual(client.generate("Hi<think>", **inside).text(), "")
            self.assertEqual(client.generate("Hi<think>", **inside).text(), "")
        self.assertEqual(logged.output, ["WARNING:tandem:GRAMMAR_NOT_REACHED"])
        with Tandem(services.generation(), strict=True) as client, self.assertRaises(StrictError) as caught:
            client.generate("Hi<think>", **inside).text()
        self.assertEqual((caught.exception.reason, caught.exception.field), ("GRAMMAR_NOT_REACHED", None))

    def test_is_an_error_of_a_strict_client(self):
        with Tandem(services.rendering(), strict=True) as client:
            calls = [
                lambda: client.render(CASE["messages"], tools=[self.TOOL]),
                client.run(CASE["messages"], tools=[self.TOOL], **LONG).text,
            ]
            for call in calls:
                with self.assertRaises(StrictError) as caught:
                    call()
                error = caught.exception
                self.assertEqual((error.reason, error.field), ("TOOLS_IGNORED", "conversation.tools"))
                self.assertEqual(error.warnings[0].path, "conversation.tools")
            good, bad = client.batch_render(
                [{"messages": CASE["messages"]}, {"messages": CASE["messages"], "tools": [self.TOOL]}]
            )
            self.assertEqual((good.prompt.text, bad.reason), (CASE["prompt"], "TOOLS_IGNORED"))
            self.assertTrue(client.run(CASE["messages"], **GREEDY).text())
        wait_until_running(0)


class AServiceThatStartsLater(unittest.TestCase):
    def test_answers_calls_that_began_before(self):
        for call in (
            lambda client: client.models(timeout=60),
            lambda client: client.run(CASE["messages"], **GREEDY).text(),
        ):
            address = services.free_address()
            with Tandem(address, timeout=60) as client:
                later = services.start_later(1.5, address)
                self.assertTrue(call(client))
                later.join()

    def test_answers_after_a_restart(self):
        address, child = services.start_child("render-svc", "--models", services.MODEL, name="restarted")
        with Tandem(address, timeout=60) as client:
            self.assertEqual(len(client.models()), 1)
            services.stop(child)
            later = services.start_later(1, address)
            self.assertEqual(len(client.models()), 1)
            later.join()

    def test_is_waited_for_until_the_deadline(self):
        with Tandem(services.free_address()) as client:
            for call in (client.models, lambda timeout: client.run(CASE["messages"], timeout=timeout).text()):
                started = time.monotonic()
                with self.assertRaises(TandemError) as caught:
                    call(timeout=2)
                self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.UNAVAILABLE, ""))
                self.assertGreater(time.monotonic() - started, 1)
                self.assertLess(time.monotonic() - started, 3)

    def test_is_tried_a_number_of_times_without_a_deadline(self):
        for retries, least, most in ((0, 0, 0.2), (2, 0.6, 3)):
            with Tandem(services.free_address(), retries=retries) as client, self.assertRaises(TandemError):
                started = time.monotonic()
                client.models()
            self.assertTrue(least <= time.monotonic() - started < most)


class ASecuredService(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = services.certificates()
        (files / "tokens").write_text("sesame\n", encoding="utf8")
        tls = ("--tls-cert", files / "server.pem", "--tls-key", files / "server.key")
        protection = (*tls, "--tls-client-ca", files / "ca.pem", "--token-file", files / "tokens")
        cls.address = services.start("render-svc", "--models", services.MODEL, *protection, name="secured")
        cls.files = files

    def test_takes_a_certificate_and_a_token(self):
        identity = {"cert": self.files / "client.pem", "key": (self.files / "client.key").read_bytes()}
        for token in ("sesame", lambda: "sesame"):
            with Tandem(self.address, ca=self.files / "ca.pem", token=token, **identity) as client:
                self.assertEqual(len(client.models()), 1)
        with Tandem(f"https://{self.address}", ca=self.files / "ca.pem", **identity) as client:
            with self.assertRaises(TandemError) as caught:
                client.models()
        self.assertEqual(caught.exception.reason, "CREDENTIALS_MISSING")

    def test_is_named_to_a_client_without_tls(self):
        with Tandem(self.address, timeout=20) as client:
            for call in (client.models, client.run(CASE["messages"]).text):
                with self.assertRaisesRegex(TandemError, f"if the service has TLS, use https://{self.address}"):
                    call()

    def test_is_not_a_service_without_tls(self):
        with Tandem(f"https://{services.rendering()}", timeout=20) as client:
            for call in (client.models, client.run(CASE["messages"]).text):
                with self.assertRaisesRegex(TandemError, f"the service has no TLS: use http://{services.rendering()}"):
                    call()

    def test_refuses_a_client_without_a_certificate(self):
        with Tandem(self.address, ca=self.files / "ca.pem", token="sesame") as client:
            with self.assertRaises(TandemError) as caught:
                client.models()
        self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)


if __name__ == "__main__":
    unittest.main()
