"""The key-value part of a GGUF file."""

import struct
from pathlib import Path
from typing import Any, BinaryIO

FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9


def read_number(file: BinaryIO, form: str) -> Any:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]


def read_string(file: BinaryIO) -> str:
    return file.read(read_number(file, "Q")).decode()


def read_value(file: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return read_string(file)
    if kind == ARRAY:
        element, count = read_number(file, "I"), read_number(file, "Q")
        return [read_value(file, element) for _ in range(count)]
    return read_number(file, FORMATS[kind])


def read_metadata(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
        read_number(file, "I")
        read_number(file, "Q")
        count = read_number(file, "Q")
        return {read_string(file): read_value(file, read_number(file, "I")) for _ in range(count)}
