#!/usr/bin/env python3
"""cri.py SOCKET COMMAND...: the calls of the Container Runtime Interface (v1) that a pod's network needs.

  status                                  succeeds if runtime and network are ready
  run NAME PARENT [KEY=VALUE...]          RunPodSandbox; prints the ID. KEY is port (HOST:CONTAINER), attempt, or an annotation
  ips ID                                  PodSandboxStatus; prints an address per line
  state ID                                PodSandboxStatus; prints `ready` or `notready`
  list                                    ListPodSandbox; prints an ID per line
  stop ID, remove ID                      StopPodSandbox, RemovePodSandbox

gRPC is HTTP/2 with five bytes before each message. curl speaks HTTP/2 over a Unix socket. Messages are protocol buffers; the
numbers in this file are field numbers of the interface's definition.
"""

import struct
import subprocess
import sys
import tempfile


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytearray([number]))


def field(number, value):
    """Encodes a field: a number, a text, or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """Yields the fields of a message, as pairs of number and value."""
    at = 0

    def read():
        nonlocal at
        number, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = read()
        if key & 7 == 0:
            yield key >> 3, read()
        else:
            size = read() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            yield key >> 3, message[at : at + size]
            at += size


def first(message, number):
    return next((value for at, value in fields(message) if at == number), b"")


def call(socket, name, message):
    with tempfile.NamedTemporaryFile() as headers:
        command = ["curl", "--silent", "--show-error", "--http2-prior-knowledge", "--unix-socket", socket, "--max-time", "60"]
        command += ["--header", "content-type: application/grpc", "--header", "te: trailers", "--data-binary", "@-"]
        command += ["--dump-header", headers.name, "http://localhost/runtime.v1.RuntimeService/" + name]
        body = b"\0" + struct.pack(">I", len(message)) + message
        answer = subprocess.run(command, input=body, stdout=subprocess.PIPE, check=True).stdout
        said = headers.read().decode(errors="replace").lower()
    if "grpc-status: 0" not in said:
        sys.exit(f"{name}: {said.strip()}")
    return answer[5:]


def main():
    socket, command, *rest = sys.argv[1:]
    if command == "status":
        status = first(call(socket, "Status", b""), 1)
        conditions = [value for number, value in fields(status) if number == 1]
        sys.exit(0 if len(conditions) >= 2 and all(first(one, 2) == 1 for one in conditions) else 1)
    if command == "run":
        name, parent, *pairs = rest
        attempt = next((int(pair[8:]) for pair in pairs if pair.startswith("attempt=")), 0)
        config = field(1, field(1, name) + field(2, "uid-" + name) + field(3, "default") + field(4, attempt))
        config += field(3, "/run/pod-logs") + field(8, field(1, parent))
        for key, value in (pair.split("=", 1) for pair in pairs):
            if key == "port":
                host, container = value.split(":")
                config += field(5, field(2, int(container)) + field(3, int(host)))
            elif key != "attempt":
                config += field(7, field(1, key) + field(2, value))
        print(first(call(socket, "RunPodSandbox", field(1, config)), 1).decode())
    elif command in ("ips", "state"):
        status = first(call(socket, "PodSandboxStatus", field(1, rest[0])), 1)
        if command == "state":
            print("notready" if first(status, 3) == 1 else "ready")
            return
        network = first(status, 5)
        more = [first(value, 1) for number, value in fields(network) if number == 2]
        print("\n".join(address.decode() for address in [first(network, 1), *more]))
    elif command == "list":
        for number, sandbox in fields(call(socket, "ListPodSandbox", b"")):
            print(first(sandbox, 1).decode())
    else:
        call(socket, {"stop": "StopPodSandbox", "remove": "RemovePodSandbox"}[command], field(1, rest[0]))


main()
