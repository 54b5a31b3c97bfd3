"""The message of an answer has no markers of reasoning, whether they are text or tokens."""

import re
import unittest

import services

from tandem import Tandem
from tandem.answer import TOKENS, without_markers
from tandem.generate.v1 import output_spec_pb2

USER = [{"role": "user", "content": "Hi"}]
IDS = output_spec_pb2.ReasoningMarkers(start_token_ids=[1], end_token_ids=[2])
TEXTS = output_spec_pb2.ReasoningMarkers(start_strings=["<a>", "<a>\n"], end_strings=["</a>", "\n</a>"])


class TheReasoningOfAMessage(unittest.TestCase):
    def parts(self, spec=lambda *ids: None, max_new_tokens=20):
        """Returns reasoning and content of an answer that starts with `<think>`, PPP, `</think>`: one token each."""
        with Tandem(services.thinking()) as client:
            start, end, text = client.tokenize("<think></think>P").token_ids
            bias = {start: 50, text: 100}  # the grammar has no P, so the start marker is the likeliest first token
            answer = client.run(
                USER,
                grammar={"regex": "Yes\\.", "after_reasoning": True},
                sampling={"temperature": 0, "logit_bias": bias},
                stop={"max_reasoning_tokens": 3, "max_new_tokens": max_new_tokens},
                output_spec=spec(start, end),
            )
            answer.text()
        return answer.message["reasoning_content"], answer.message["content"]

    def test_has_no_markers_that_are_tokens(self):
        self.assertEqual(self.parts(), ("PPP", "Yes."))

    def test_is_complete_where_markers_leave_no_text(self):
        def dropped(start, end):
            markers = {"start_token_ids": [start], "end_token_ids": [end]}
            return {"reasoning": markers, "special_token_classes": [{"token_ids": [start, end], "action": "drop"}]}

        self.assertEqual(self.parts(dropped), ("PPP", "Yes."))

    def test_is_complete_where_the_output_ends_inside(self):
        with self.assertLogs("tandem", "WARNING"):  # GRAMMAR_NOT_REACHED
            self.assertEqual(self.parts(max_new_tokens=3), ("PP", ""))

    def test_keeps_all_other_text(self):
        cases = [
            (IDS, "<think>a</think>", "a"),
            (IDS, "a</think>", "a"),
            (IDS, "<think>a", "a"),
            (IDS, "<b>a</think>b</b>", "<b>a</think>b</b>"),
            (IDS, "<think><think>a</think></think>", "<think>a</think>"),
            (IDS, "[THINK]a</think>", "a"),
            (TEXTS, "<a>\nb\n</a>", "b"),
            (TEXTS, "<think>a</think>", "<think>a</think>"),
            (output_spec_pb2.ReasoningMarkers(), "<think>a</think>", "<think>a</think>"),
        ]
        for markers, text, expected in cases:
            with self.subTest(text):
                self.assertEqual(without_markers(text, markers), expected)

    def test_follows_the_markers_of_render_svc(self):
        source = (services.REPOSITORY / "render-svc/src/output_spec/reasoning.rs").read_text(encoding="utf8")
        self.assertEqual(re.findall(r'^    \("(.+)", "(.+)"\),$', source, re.MULTILINE), list(TOKENS))


if __name__ == "__main__":
    unittest.main()
