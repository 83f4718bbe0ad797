"""The bytes of the format: one tag per type, and the limits that both sides keep.

After its tag a value has its fields; a count or a length is an unsigned LEB128 number; text is
UTF-8 with lone surrogates let through, as Python's own strings have them (file names).
"""

from __future__ import annotations

from enum import IntEnum

# Deep enough for any configuration, shallow enough for Python's recursion limit of 1000 at two
# frames a level under a notebook's own hundred.
MAX_DEPTH = 200

# NumPy's limit since 2.0, and that of torch's loops over tensors.
MAX_DIMS = 64

# An array without elements still lets NumPy allocate one item, whose size a few bytes can name.
MAX_EMPTY_ITEM_BYTES = 1 << 20

# Shorter text (in characters) and bytes are cheaper to repeat than to remember.
MIN_SHARED_LENGTH = 32


class Tag(IntEnum):
    NONE = 0x00
    FALSE = 0x01
    TRUE = 0x02
    INT = 0x03
    FLOAT = 0x04
    COMPLEX = 0x05
    STR = 0x06
    BYTES = 0x07
    BYTEARRAY = 0x08
    ELLIPSIS = 0x09

    LIST = 0x10
    TUPLE = 0x11
    SET = 0x12
    FROZENSET = 0x13
    DICT = 0x14
    ORDERED_DICT = 0x15
    NAMESPACE = 0x16
    SIMPLE_NAMESPACE = 0x17
    SHARED = 0x1F
    """An object that came before: its number among those that can be shared."""

    POSIX_PATH = 0x20
    WINDOWS_PATH = 0x21
    PURE_POSIX_PATH = 0x22
    PURE_WINDOWS_PATH = 0x23
    DATETIME = 0x24
    DATE = 0x25
    TIME = 0x26
    TIMEDELTA = 0x27
    TIMEZONE = 0x28
    ZONE_INFO = 0x29

    TENSOR = 0x30
    PARAMETER = 0x31
    TORCH_SIZE = 0x32
    TORCH_DTYPE = 0x33
    TORCH_DEVICE = 0x34

    ARRAY = 0x40
    NUMPY_SCALAR = 0x41
    NUMPY_STR = 0x42
    NUMPY_BYTES = 0x43
