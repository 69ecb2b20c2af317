"""Write small ONNX models without the `onnx` package: for the demo, the examples and the tests.

A `Builder` collects constants and nodes, and returns the file's bytes.  It names a node's outputs when the node is
added.  It does not check operators; the program that loads the model does that.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Builder", "Node", "Reference", "TYPES"]

#: ONNX's numbers of data types, by the types' names in NumPy.
TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}

#: Types of four bits, which NumPy does not have.
NARROW = {"uint4": 21, "int4": 22}

Dim = int | str | None


class Node(NamedTuple):
    """A node of the model: the arguments with which it was added, and its outputs."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class Reference(NamedTuple):
    """A reference, in a function of the model, to an attribute of the node that calls the function."""

    name: str
    kind: int


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _nibbles(array: np.ndarray[Any, Any], name: str, dtype: str) -> bytes:
    low = array.ravel().astype("uint8") & 15
    packed = [int(low[i]) | (int(low[i + 1]) << 4 if i + 1 < low.size else 0) for i in range(0, low.size, 2)]
    shape = b"".join(_number(1, dim) for dim in array.shape)
    return shape + _number(2, NARROW[dtype]) + _text(8, name) + _bytes(9, bytes(packed))


def _tensor(array: np.ndarray[Any, Any], name: str = "") -> bytes:
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)     # ONNX files are little-endian
    shape = b"".join(_number(1, dim) for dim in array.shape)
    return shape + _number(2, TYPES[array.dtype.name]) + _text(8, name) + _bytes(9, array.tobytes())


def _info(name: str, dtype: str, dims: Sequence[Dim] | None) -> bytes:
    tensor = _number(1, TYPES[dtype])
    if dims is not None:
        each = (b"" if d is None else _number(1, d) if isinstance(d, int) else _text(2, d) for d in dims)
        tensor += _bytes(2, b"".join(_bytes(1, dim) for dim in each))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _attribute(name: str, value: Any) -> bytes:
    made = _text(1, name)
    if isinstance(value, Reference):
        return made + _text(21, value.name) + _number(20, value.kind)
    if isinstance(value, bool | int):
        return made + _number(3, int(value)) + _number(20, 2)
    if isinstance(value, float):
        return made + _float(2, value) + _number(20, 1)
    if isinstance(value, str):
        return made + _text(4, value) + _number(20, 3)
    if hasattr(value, "dtype"):
        return made + _bytes(5, _tensor(value)) + _number(20, 4)
    if isinstance(value, Builder):
        return made + _bytes(6, value._graph()) + _number(20, 5)
    items = list(value)
    if items and isinstance(items[0], float):
        return made + b"".join(_float(7, item) for item in items) + _number(20, 6)
    if items and isinstance(items[0], str):
        return made + b"".join(_text(9, item) for item in items) + _number(20, 8)
    return made + b"".join(_number(8, item) for item in items) + _number(20, 7)


class Builder:
    """A model under construction, or a subgraph: a node's attribute may be another Builder.

    Parameters
    ----------
    opset : int
        The version of ONNX's operator set.
    name : str
        Name of the graph.

    Attributes
    ----------
    nodes, constants, inputs, outputs
        The parts that were added, in order, for programs that compute the model in another way.
    """

    def __init__(self, opset: int = 17, name: str = "model") -> None:
        self.opset = opset
        self.name = name
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._count = 0

    def input(self, name: str, dtype: str, dims: Sequence[Dim] | None) -> str:
        """Declare an input; a dimension is a number, or a name or None if it is dynamic."""
        self.inputs.append(name)
        self._inputs.append(_info(name, dtype, dims))
        return name

    def output(self, name: str, dtype: str = "float32", dims: Sequence[Dim] | None = None) -> None:
        """Declare a value as an output of the model."""
        self.outputs.append(name)
        self._outputs.append(_info(name, dtype, dims))

    def constant(self, array: np.ndarray[Any, Any], name: str = "", narrow: str = "") -> str:
        """Add an initializer and return its name; `narrow` "int4" or "uint4": write each element in four bits."""
        name = name or self._fresh("constant")
        self.constants[name] = array
        self._constants.append(_nibbles(array, name, narrow) if narrow else _tensor(array, name))
        return name

    def outside(self, dtype: str, dims: Sequence[int], location: str, offset: int = 0) -> str:
        """Add an initializer whose data is in a file beside the model; the caller writes that file."""
        name, where = self._fresh("constant"), {"location": location, "offset": str(offset)}
        tensor = b"".join(_number(1, dim) for dim in dims) + _number(2, {**TYPES, **NARROW}[dtype]) + _text(8, name)
        tensor += b"".join(_bytes(13, _text(1, key) + _text(2, value)) for key, value in where.items())
        self._constants.append(tensor + _number(14, 1))
        return name

    def add(
        self,
        kind: str,
        *inputs: str,
        outputs: int | Sequence[str] = 1,
        name: str = "",
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Add a node and return its output's name, or a tuple of names if it has several."""
        names = [self._fresh(kind) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        self.nodes.append(Node(kind, inputs, tuple(names), attributes))
        node = b"".join(_text(1, i) for i in inputs) + b"".join(_text(2, o) for o in names)
        node += _text(3, name or f"{kind}_{len(self._nodes)}") + _text(4, kind)
        node += b"".join(_bytes(5, _attribute(k, v)) for k, v in attributes.items())
        self._nodes.append(node + (_text(7, domain) if domain else b""))
        return names[0] if len(names) == 1 else tuple(names)

    def to_bytes(
        self, metadata: Mapping[str, str] | None = None, functions: Mapping[str, Builder] | None = None
    ) -> bytes:
        """Return the file.  `metadata` becomes metadata_props; `functions`, by name, belong to the domain "local"."""
        model = _number(1, 8) + _text(2, "aclpool") + _bytes(7, self._graph())
        model += _bytes(8, _text(1, "") + _number(2, self.opset))
        for key, value in (metadata or {}).items():
            model += _bytes(14, _text(1, key) + _text(2, value))
        for key, body in (functions or {}).items():
            model += _bytes(25, body._function(key))
        return model

    def _function(self, name: str) -> bytes:
        made = _text(1, name) + b"".join(_text(4, i) for i in self.inputs) + b"".join(_text(5, o) for o in self.outputs)
        made += b"".join(_bytes(7, node) for node in self._nodes) + _text(10, "local")
        return made + _bytes(9, _text(1, "") + _number(2, self.opset))

    def _graph(self) -> bytes:
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _text(2, self.name)
        graph += b"".join(_bytes(5, tensor) for tensor in self._constants)
        graph += b"".join(_bytes(11, info) for info in self._inputs)
        return graph + b"".join(_bytes(12, info) for info in self._outputs)

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem.lower()}_{self._count}"
