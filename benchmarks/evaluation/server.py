"""An OpenAI-compatible server that answers at once, in a process of its own; it prints its port."""

from __future__ import annotations

import asyncio
import json

ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": "\\boxed{0}", "refusal": None},
        }
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 4, "total_tokens": 64},
}
BODY = json.dumps(ANSWER).encode()
REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
) + BODY


class Answers(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while True:
            head, end, rest = self.received.partition(b"\r\n\r\n")
            if not end:
                return
            lines = [line.lower() for line in head.split(b"\r\n")]
            size = next(int(x[15:]) for x in lines if x.startswith(b"content-length:"))
            if len(rest) < size:
                return
            self.received = rest[size:]
            self.transport.write(REPLY)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answers, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
