"""Writes small ONNX models without the onnx package: just enough of protobuf for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["model", "node", "save", "tensor", "value"]

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def message(tag: int, body: bytes | str) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    return varint(tag << 3 | 2) + varint(len(body)) + body


def tensor(name: str, array: np.ndarray) -> bytes:
    """A TensorProto."""
    dims = b"".join(number(1, n) for n in array.shape)
    return dims + number(2, TYPES[array.dtype.name]) + message(8, name) + message(9, array.tobytes())


def value(name: str, dtype: str, shape: Sequence[int | str]) -> bytes:
    """A ValueInfoProto; a str is a named dimension, which is not known."""
    dims = b"".join(message(1, message(2, d) if isinstance(d, str) else number(1, d)) for d in shape)
    return message(1, name) + message(2, message(1, number(1, TYPES[dtype]) + message(2, dims)))


def attribute(name: str, given: int | str | Sequence[int]) -> bytes:
    """An AttributeProto: an int, a string or ints."""
    if isinstance(given, int):
        return message(1, name) + number(3, given) + number(20, 2)
    if isinstance(given, str):
        return message(1, name) + message(4, given) + number(20, 3)
    return message(1, name) + b"".join(number(8, n) for n in given) + number(20, 7)


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int | str | Sequence[int]) -> bytes:
    """A NodeProto."""
    body = b"".join(message(1, n) for n in inputs) + b"".join(message(2, n) for n in outputs)
    body += message(3, f"{kind}_{outputs[0]}") + message(4, kind)
    return body + b"".join(message(5, attribute(n, v)) for n, v in attributes.items())


def model(nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], weights: Sequence[bytes] = (),
          **metadata: str) -> bytes:
    """A ModelProto of opset 17."""
    graph = b"".join(message(1, n) for n in nodes) + message(2, "graph")
    graph += b"".join(message(5, w) for w in weights)
    graph += b"".join(message(11, i) for i in inputs) + b"".join(message(12, o) for o in outputs)
    body = number(1, 8) + message(7, graph) + message(8, number(2, 17))
    return body + b"".join(message(14, message(1, k) + message(2, v)) for k, v in metadata.items())


def save(path: Path, content: bytes) -> str:
    """Writes a model; the path as text."""
    path.write_bytes(content)
    return str(path)
