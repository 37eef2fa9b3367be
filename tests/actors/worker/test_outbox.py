"""A slow reader costs a bounded number of items, and loses nothing."""

from __future__ import annotations

import asyncio

from actors.worker.outbox import ITEMS_MAX, Outbox, join
from protocol.errors import WorkerFault
from protocol.messages.worker import Item, TokenLogprob


def delta(text: str, logprobs: list[TokenLogprob] | None = None) -> Item:
    return Item(kind="delta", text=text, ids=text.encode(), logprobs=logprobs)


async def test_items_come_out_in_order_and_a_reader_waits() -> None:
    box = Outbox()
    reading = asyncio.ensure_future(box.get())
    await asyncio.sleep(0)
    assert not reading.done()
    box.put(delta("a"))
    assert await reading == delta("a")
    error = WorkerFault("no")
    box.put(delta("b"))
    box.put(error)
    assert await box.get() == delta("b")
    assert await box.get() is error


async def test_progress_is_replaced_and_deltas_are_joined_beyond_the_bound() -> None:
    box = Outbox()
    for done in range(10):
        box.put(Item(kind="prefill", done=done, total=10))
    texts = [f"<{n}>" for n in range(3 * ITEMS_MAX)]
    for text in texts:
        box.put(delta(text))
    box.put(Item(kind="end", finish="stop"))
    assert len(box) <= ITEMS_MAX + 1
    assert (await box.get()) == Item(kind="prefill", done=9, total=10)
    out, item = "", await box.get()
    while isinstance(item, Item) and item.kind == "delta":
        out += item.text or ""
        assert item.ids == (item.text or "").encode()
        item = await box.get()
    assert out == "".join(texts)
    assert item == Item(kind="end", finish="stop")


def test_joined_deltas_keep_every_logprob() -> None:
    entries = [TokenLogprob(token=n, piece=b"", logprob_ppm=-1, top=[]) for n in range(3)]
    both = join(delta("a", entries[:1]), delta("b", entries[1:]))
    assert both.logprobs == entries
    assert join(delta("a"), delta("b")).logprobs is None
