"""Sends requests to an application at a fixed rate, and says what came back. Needs Python only.

    python3 benches/serve_load.py http://127.0.0.1:8000/ --seconds 60 --rate 50 --key KEY

The model is open: a request is sent when its time has come, whether or not those before it were answered. Every second
one has a connection of its own; the others take one that was kept open, as clients with a pool do. No request is sent
again: a connection that was closed under a request is an error.
"""

import argparse
import asyncio
import collections
import time
import urllib.parse

# The timeout of a request, in seconds.
LIMIT = 30


class Load:
    """A run, and what came of it: `outcomes` has the second, the outcome and the milliseconds of each request."""

    def __init__(self, url, rate, key=None):
        address = urllib.parse.urlsplit(url)
        self.host, self.port, self.rate = address.hostname, address.port, rate
        headers = f"X-Gpucl-Key: {key}\r\n" if key else ""
        path = address.path or "/"
        self.heads = {
            word: f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n{headers}Connection: {word}\r\n\r\n".encode()
            for word in ("keep-alive", "close")
        }
        self.idle, self.outcomes, self.versions, self.begin = [], [], collections.Counter(), None

    async def run(self, seconds):
        """Sends requests for so many seconds, and waits for the last answers."""
        self.begin = time.monotonic()
        sent = []
        for number in range(int(seconds * self.rate)):
            await asyncio.sleep(max(0, self.begin + number / self.rate - time.monotonic()))
            sent.append(asyncio.create_task(self.ask(number % 2 == 0)))
        await asyncio.gather(*sent)
        for _, writer in self.idle:
            writer.close()

    async def ask(self, keeps):
        begin = time.monotonic()
        kind = "kept" if keeps and self.idle else "fresh"
        try:
            outcome = await asyncio.wait_for(self.answer(keeps), LIMIT)
        except asyncio.TimeoutError:
            outcome = f"no answer in {LIMIT} s"
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            outcome = f"{type(error).__name__} on a {kind} connection"
        self.outcomes.append((begin - self.begin, outcome, (time.monotonic() - begin) * 1000))

    async def answer(self, keeps):
        """Sends a request; the status of its answer."""
        if keeps and self.idle:
            reader, writer = self.idle.pop()
        else:
            reader, writer = await asyncio.open_connection(self.host, self.port)
        is_whole = False
        try:
            writer.write(self.heads["keep-alive" if keeps else "close"])
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            body = await self.body(reader, head)
            status = head.split(" ")[1]
            is_whole = keeps and "connection: close" not in head
            if status == "200":
                self.versions[body.decode()] += 1
                return "200"
            return f"{status} {body[:60].decode(errors='replace')}"
        finally:
            if is_whole:
                self.idle.append((reader, writer))
            else:
                writer.close()

    async def body(self, reader, head):
        """What follows a head: in chunks, or of the length that it names."""
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        if fields.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(fields.get("content-length", 0)))
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return body

    def report(self, name, begin=0.0, end=float("inf")):
        """One line about the requests that were sent within these seconds."""
        part = sorted(it for it in self.outcomes if begin <= it[0] < end)
        took = sorted(it[2] for it in part)
        errors = collections.Counter(it[1] for it in part if it[1] != "200")
        if not took:
            return f"{name}: no requests"
        # From one good answer to the next.
        good = sorted(it[0] + it[2] / 1000 for it in part if it[1] == "200")
        gap = max((after - before for before, after in zip(good, good[1:])), default=float("nan"))
        at = [took[min(len(took) - 1, int(len(took) * share))] for share in (0.5, 0.95, 0.99)]
        text = f"{name}: {len(part)} requests, {sum(errors.values())} lost, p50 {at[0]:.0f} ms, p95 {at[1]:.0f} ms, "
        text += f"p99 {at[2]:.0f} ms, slowest {took[-1]:.0f} ms, longest gap {gap:.2f} s"
        return text + "".join(f"\n    {count} x {outcome}" for outcome, count in errors.most_common())


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("url")
    arguments.add_argument("--key")
    arguments.add_argument("--rate", type=float, default=50)
    arguments.add_argument("--seconds", type=float, default=30)
    arguments = arguments.parse_args()
    load = Load(arguments.url, arguments.rate, arguments.key)
    asyncio.run(load.run(arguments.seconds))
    print(load.report("all"))


if __name__ == "__main__":
    main()
