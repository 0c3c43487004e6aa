# SPDX-License-Identifier: Apache-2.0
"""Frames of the service's protocol (docs/wire.md), right and wrong ones, for tests that speak it themselves."""
import socket
import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def frame(head, kind=1, payload=0, magic=b"MRF1", good=True):
    fixed = magic + bytes([kind, 0, 0, 0]) + struct.pack("<IQ", len(head), payload)
    return fixed + struct.pack("<I", crc32c(fixed + head) ^ (not good)) + head


def varint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """A field of a protobuf message: bytes or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def hello(version=2, role=4, nonce=b"n" * 32, host=b"stranger"):
    return frame(field(1, field(1, version) + field(2, role) + field(3, nonce) + field(4, host) + field(5, 1)))


def declared(bytes_of_head, payload=0, kind=1):
    """The beginning of a frame that says how large it will be, and never is."""
    fixed = b"MRF1" + bytes([kind, 0, 0, 0]) + struct.pack("<IQ", bytes_of_head, payload)
    return fixed + struct.pack("<I", crc32c(fixed))


def send(s, data):
    try:
        s.sendall(data)
        return True
    except OSError:
        return False


def is_closed(s, seconds=600):
    """The other side ends the connection, whatever it says before."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except socket.timeout:
        return False
    except OSError:
        return True


def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            return None
        data += more
    return data


def frames(s):
    """The frames that come in, until the other side ends: kind, head. Payloads are left out."""
    while True:
        try:
            fixed = receive(s, 24)
            if not fixed:
                return
            n, payload = struct.unpack("<IQ", fixed[8:20])
            head = receive(s, n) if n else b""
            if payload and not receive(s, payload):
                return
        except OSError:
            return
        yield fixed[4], head


def parse(message):
    """Field numbers and values of a protobuf message, the last one of each."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 2:
            n = number()
            fields[key >> 3] = message[at:at + n]
            at += n
        elif key & 7 == 1:
            fields[key >> 3] = int.from_bytes(message[at:at + 8], "little")
            at += 8
        else:
            fields[key >> 3] = number()
    return fields
