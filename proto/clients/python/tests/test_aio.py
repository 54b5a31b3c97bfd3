"""The client for asyncio against running services."""

import asyncio
import unittest

import grpc
import services
import test_client
from test_client import CASE, GREEDY, LONG, wait_until_running

from tandem import AsyncTandem, StrictError, TandemError


class AnAsyncClient(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.render, self.generate = AsyncTandem(services.rendering()), AsyncTandem(services.generation())
        self.addAsyncCleanup(self.render.close)
        self.addAsyncCleanup(self.generate.close)

    async def test_makes_every_call(self):
        rendered = await self.render.render(CASE["messages"])
        self.assertEqual(rendered.prompt.text, CASE["prompt"])
        (batched,) = await self.render.batch_render([{"messages": CASE["messages"]}])
        self.assertEqual(batched.prompt, rendered.prompt)
        ids = (await self.render.tokenize(CASE["prompt"])).token_ids
        self.assertEqual(await self.render.detokenize(ids), CASE["prompt"])
        (listed,) = await self.render.models()
        self.assertEqual(await self.render.model(), listed)
        self.assertEqual((await self.generate.generation_model()).id, listed.id)
        self.assertEqual(await self.generate.health(), "SERVING")
        text = await self.generate.generate(rendered, **GREEDY).text()
        self.assertEqual(text, await self.render.run(CASE["messages"], **GREEDY).text())

    async def test_streams_the_tokens_of_transformers(self):
        async with self.render.run(CASE["messages"], return_options={"token_ids": True}, **GREEDY) as answer:
            ids = [i async for delta in answer.deltas() for i in delta.token_ids]
        self.assertEqual(ids, CASE["greedy_ids"][:16])
        self.assertEqual((answer.finish_reason, len(answer.request_id)), ("LENGTH", 32))

    async def test_cancels_at_the_end_of_a_block(self):
        async with self.render.run(CASE["messages"], **LONG) as answer:
            async for text in answer:
                self.assertTrue(text)
                break
        await asyncio.to_thread(wait_until_running, 0)

    async def test_cancels_with_its_task(self):
        started = asyncio.Event()

        async def read():
            async for _ in self.render.run(CASE["messages"], **LONG):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until_running, 0)

    async def test_cancels_for_another_task(self):
        answer = self.render.run(CASE["messages"], **LONG)
        asyncio.get_running_loop().call_later(0.5, answer.cancel)
        text = await answer.text()
        self.assertEqual((answer.finish_reason, answer.message["content"]), ("CANCELLED", text))
        never = self.render.run(CASE["messages"], **LONG)
        never.cancel()
        self.assertEqual((await never.text(), never.finish_reason), ("", "CANCELLED"))
        await asyncio.to_thread(wait_until_running, 0)

    async def test_logs_or_raises_warnings(self):
        tools = [test_client.AWarning.TOOL]
        with self.assertLogs("tandem", "WARNING") as logged:
            await self.render.render(CASE["messages"], tools=tools)
            await self.render.run(CASE["messages"], tools=tools, **GREEDY).text()
        self.assertEqual(len(logged.output), 1)
        async with AsyncTandem(services.rendering(), strict=True) as client:
            with self.assertRaises(StrictError):
                await client.render(CASE["messages"], tools=tools)
            with self.assertRaises(StrictError):
                await client.run(CASE["messages"], tools=tools).text()

    async def test_waits_for_a_service_that_starts_later(self):
        calls = [
            lambda client: client.models(),
            lambda client: client.run(CASE["messages"], **GREEDY).text(),
        ]
        for call in calls:
            address = services.free_address()
            async with AsyncTandem(address, timeout=60) as client:
                later = services.start_later(1.5, address)
                self.assertTrue(await call(client))
                later.join()

    async def test_waits_until_the_deadline_or_a_cancellation(self):
        async with AsyncTandem(services.free_address(), timeout=1) as client:
            for call in (client.models(), client.run(CASE["messages"]).text()):
                with self.assertRaises(TandemError) as caught:
                    await call
                self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.UNAVAILABLE, ""))
            answer = client.run(CASE["messages"], timeout=60)
            asyncio.get_running_loop().call_later(0.5, answer.cancel)
            self.assertEqual((await answer.text(), answer.finish_reason), ("", "CANCELLED"))

    async def test_hints_at_tls(self):
        async with AsyncTandem(f"https://{services.rendering()}", timeout=20) as client:
            with self.assertRaisesRegex(TandemError, "the service has no TLS: use http://"):
                await client.models()

    async def test_has_typed_errors(self):
        with self.assertRaises(TandemError) as caught:
            await self.render.run(CASE["messages"], sampling={"temperature": -1}).text()
        error = caught.exception
        self.assertEqual((error.reason, error.field), ("INVALID_REQUEST", "sampling.temperature"))
        with self.assertRaises(TandemError) as caught:
            await self.render.render([], request_id="mine")
        self.assertEqual((caught.exception.field, caught.exception.request_id), ("conversation.messages", "mine"))

    async def test_retries_after_the_delay_of_the_service(self):
        generation = f"http://{services.generation()}"
        arguments = ("--models", services.MODEL, "--generate", generation, "--max-calls", "1")
        address = services.start("render-svc", *arguments, name="one-call-aio")
        async with AsyncTandem(address, retries=100) as client, client.run(CASE["messages"], **LONG) as first:
            await first.__aiter__().__anext__()
            asyncio.get_running_loop().call_later(0.5, first.cancel)
            self.assertTrue(await client.run(CASE["messages"], **GREEDY).text())


if __name__ == "__main__":
    unittest.main()
