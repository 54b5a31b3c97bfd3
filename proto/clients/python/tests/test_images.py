"""Images in tasks and in generation. A tiny model answers with the tokens of transformers."""

import base64
import unittest

import grpc
import services
import vision

from tandem import AsyncTandem, Tandem, TandemError, image

CONVERSATION = vision.conversations()[0]
GREEDY = {"sampling": {"temperature": 0}, "stop": {"max_new_tokens": 32}, "return_options": {"token_ids": True}}


def with_images(form):
    """Returns the conversation with its images in another form, made from the base64 text."""
    messages = []
    for message in CONVERSATION["messages"]:
        blocks = [form(block["base64"]) if block["type"] == "image" else block for block in message["content"]]
        messages.append({**message, "content": blocks})
    return messages


FORMS = {
    "base64": lambda data: {"type": "image", "base64": data},
    "bytes": lambda data: image(base64.b64decode(data), "image/jpeg"),
    "data URL": lambda data: {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}},
}


class AnImage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.render, cls.generate = Tandem(services.vision_rendering()), Tandem(services.vision_generation())
        cls.addClassCleanup(cls.render.close)
        cls.addClassCleanup(cls.generate.close)

    def test_of_every_form_is_part_of_a_task(self):
        for name, form in FORMS.items():
            with self.subTest(name):
                answer = self.render.run(with_images(form), **GREEDY)
                self.assertEqual([i for delta in answer.deltas() for i in delta.token_ids], CONVERSATION["greedy"])
                self.assertGreater(answer.totals.usage.image_tokens, 0)

    def test_of_every_form_is_part_of_a_rendered_prompt(self):
        for name, form in FORMS.items():
            with self.subTest(name):
                answer = self.generate.generate(self.render.render(with_images(form)), **GREEDY)
                self.assertEqual([i for delta in answer.deltas() for i in delta.token_ids], CONVERSATION["greedy"])

    def test_that_is_no_image_is_named(self):
        wrong = with_images(lambda _: {"type": "image", "base64": "AAAA"})
        with self.assertRaises(TandemError) as caught:
            self.generate.generate(self.render.render(wrong), **GREEDY).text()
        self.assertEqual(caught.exception.reason, "INVALID_IMAGE")
        self.assertEqual(caught.exception.field, "hf_messages_json[0].content[1].base64")


class AnImageForATextModel(unittest.TestCase):
    def failure(self, address, call):
        with Tandem(address) as client, self.assertRaises(TandemError) as caught:
            call(client)
        return caught.exception.code, caught.exception.reason

    def test_is_refused(self):
        messages, refused = with_images(FORMS["bytes"]), (grpc.StatusCode.FAILED_PRECONDITION, "IMAGES_NOT_SUPPORTED")
        task = self.failure(services.rendering(), lambda client: client.run(messages).text())
        with Tandem(services.rendering()) as client:
            rendered = client.render(messages)
        prompt = self.failure(services.generation(), lambda client: client.generate(rendered).text())
        self.assertEqual((task, prompt), (refused, refused))


class AnAsyncClient(unittest.IsolatedAsyncioTestCase):
    async def test_sends_images(self):
        messages = with_images(FORMS["bytes"])
        async with AsyncTandem(services.vision_rendering()) as render:
            task = render.run(messages, **GREEDY)
            self.assertEqual([i async for delta in task.deltas() for i in delta.token_ids], CONVERSATION["greedy"])
            rendered = await render.render(messages)
        async with AsyncTandem(services.vision_generation()) as generate:
            answer = generate.generate(rendered, **GREEDY)
            self.assertEqual([i async for delta in answer.deltas() for i in delta.token_ids], CONVERSATION["greedy"])

    async def test_gets_the_refusal_of_a_text_model(self):
        async with AsyncTandem(services.rendering()) as client:
            with self.assertRaises(TandemError) as caught:
                await client.run(with_images(FORMS["base64"])).text()
        self.assertEqual(caught.exception.reason, "IMAGES_NOT_SUPPORTED")


if __name__ == "__main__":
    unittest.main()
