"""Leases a device from a node, runs one kernel, and prints its output.

    python3 -m venv venv && venv/bin/pip install -r examples/python/requirements.txt
    venv/bin/python examples/python/lease.py 127.0.0.1:5701 kernels/iota.ptx

The node runs on this machine with `--insecure`, so nothing is verified, and any other address is refused. The chapter "The wire protocol" of the book
specifies the protocol; `struct` and QUIC are all that a client needs.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
import struct
import sys
from contextlib import AsyncExitStack

from aioquic.asyncio import connect
from aioquic.quic.configuration import QuicConfiguration
from blake3 import blake3

ALPN = "cuda-lease/1"
VERSION = 1
REPLY = 0x8000
HELLO, ALLOC, FREE, SUBMIT = 0x0001, 0x0200, 0x0202, 0x0600
REFUSED = 0x8000
NOT_FOUND = 14
CONNECT_SECONDS = 5
FRAME_LIMIT = 1 << 20
HEADER = struct.Struct("<IHHIQ")


class Refused(Exception):
    def __init__(self, status: int, detail: str):
        super().__init__(f"the node refused the request with status {status}: {detail}")
        self.status = status


def data(value: bytes) -> bytes:
    """Bytes, or a text in UTF-8, with their length."""
    return struct.pack("<I", len(value)) + value


def optional(value: bytes | None) -> bytes:
    """A field that may be absent."""
    return b"\0" if value is None else b"\1" + value


class Fields:
    """Reads the fields of a body in order."""

    def __init__(self, body: bytes):
        self.body, self.at = body, 0

    def numbers(self, layout: str) -> tuple:
        values = struct.unpack_from("<" + layout, self.body, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def data(self) -> bytes:
        (length,) = self.numbers("I")
        if length > len(self.body) - self.at:
            raise ValueError(f"a field has {length} bytes, {len(self.body) - self.at} are left in its frame")
        self.at += length
        return self.body[self.at - length : self.at]


class Stream:
    """A bidirectional stream of frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    def send(self, opcode: int, body: bytes, number: int = 0) -> None:
        self.writer.write(HEADER.pack(len(body), opcode, 0, 0, number) + body)

    async def receive(self, opcode: int) -> Fields:
        header = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        if header[0] > FRAME_LIMIT:
            raise ValueError(f"a frame has {header[0]} bytes, the limit is {FRAME_LIMIT}")
        body = Fields(await self.reader.readexactly(header[0]))
        if header[1] == REFUSED:
            (status,) = body.numbers("H")
            raise Refused(status, body.data().decode())
        if header[1] != opcode | REPLY:
            raise ValueError(f"expected the reply to opcode {opcode:#06x}, received opcode {header[1]:#06x}")
        return body


class Client:
    def __init__(self, connection):
        self.connection = connection

    async def open(self) -> Stream:
        return Stream(*await self.connection.create_stream())

    async def greet(self) -> None:
        """Opens the request stream."""
        self.control, self.requests = await self.open(), 0
        welcome = await self.ask(HELLO, struct.pack("<HHQ", VERSION, VERSION, 0) + data(b"lease.py"))
        (version,) = welcome.numbers("H")
        if version != VERSION:
            raise ValueError(f"the node speaks version {version} of the protocol, this client speaks {VERSION}")

    async def ask(self, opcode: int, body: bytes) -> Fields:
        """Sends a request on the request stream, and waits for its reply."""
        self.requests += 1
        self.control.send(opcode, body, self.requests)
        return await self.control.receive(opcode)

    async def allocate(self, memory: int, seconds: int) -> tuple[int, bytes]:
        shared, any_device, no_wait, priority, detached = 0, None, 0, 0, 0
        request = os.urandom(16) + struct.pack("<QIB", memory, seconds, shared)
        request += optional(any_device) + struct.pack("<IiB", no_wait, priority, detached)
        granted = await self.ask(ALLOC, request)
        (lease,) = granted.numbers("Q")
        return lease, granted.data()

    async def free(self, lease: int, token: bytes) -> None:
        await self.ask(FREE, struct.pack("<Q", lease) + data(token))

    async def submit(self, lease: int, token: bytes, ptx: bytes, *rest) -> bytes:
        """Names the image by its hash, and sends it only if the node does not have it."""
        try:
            return await self.submit_once(lease, token, ptx, None, *rest)
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise
        return await self.submit_once(lease, token, ptx, data(ptx), *rest)

    async def submit_once(self, lease, token, ptx, image, kernel, grid, block, arguments, output) -> bytes:
        shared_bytes, region, no_input, offset, as_ptx = 0, 0, 0, 0, b"\0"
        request = struct.pack("<Q", lease) + data(token) + as_ptx + blake3(ptx).digest() + optional(image)
        request += data(kernel.encode()) + struct.pack("<3I3II", *grid, *block, shared_bytes)
        request += struct.pack("<I", len(arguments)) + b"".join(map(data, arguments))
        request += struct.pack("<4Q", region, no_input, offset, output)
        stream = await self.open()
        stream.send(SUBMIT, request)
        stream.writer.write_eof()
        reply = await stream.receive(SUBMIT)
        (status,) = reply.numbers("H")
        text, inline = reply.data().decode(), reply.data()
        (following,) = reply.numbers("Q")
        if status:
            raise Refused(status, text)
        if len(inline) + following > output:
            raise ValueError(f"the output has {len(inline) + following} bytes, {output} were requested")
        return inline + await stream.reader.readexactly(following)


def loopback(host: str, port: str) -> str:
    """The address of a host on this machine. The client verifies no other node."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0][4][0]
    except (ValueError, OSError) as error:
        sys.exit(f"{host}:{port} is no address of a node: {error}; write HOST:PORT, such as 127.0.0.1:5701")
    if not ipaddress.ip_address(found).is_loopback:
        sys.exit(
            f"{host} has the address {found}, which is not a loopback address; this client verifies no node, so the "
            "node has to be on this machine"
        )
    return found


async def main(address: str, path: str) -> None:
    host, _, port = address.rpartition(":")
    host = loopback(host, port)
    with open(path, "rb") as file:
        ptx = file.read()
    settings = QuicConfiguration(alpn_protocols=[ALPN], is_client=True, verify_mode=ssl.CERT_NONE)
    async with AsyncExitStack() as stack:
        connecting = stack.enter_async_context(connect(host, int(port), configuration=settings))
        try:
            connection = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except (TimeoutError, asyncio.TimeoutError, ConnectionError):
            sys.exit(f"no node answers at {address}; start one with `cuda-node --device cpu --insecure`")
        client = Client(connection)
        await client.greet()
        lease, token = await client.allocate(1 << 20, 60)
        count = 256
        arguments = [struct.pack("<I", count)]
        output = await client.submit(lease, token, ptx, "iota", (1, 1, 1), (count, 1, 1), arguments, 4 * count)
        await client.free(lease, token)
    print(*struct.unpack(f"<{count}f", output), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: lease.py HOST:PORT FILE.ptx")
    asyncio.run(main(sys.argv[1], sys.argv[2]))
