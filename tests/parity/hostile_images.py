"""Files that are no whole images, for image_folder_parity_test.py: each is made of the bytes of whole ones, by
format."""

import struct
import zlib

import numpy as np

HEIGHT, WIDTH = 61, 83  # of the whole ones


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(header, *chunks, end=True):
    """A PNG of these chunks: header is (width, height, depth, colour type, interlacing)."""
    width, height, depth, color, interlaced = header
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)), *chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + (chunk(b"IEND", b"") if end else b"")


def rows(count, size, seed=0):
    """`count` rows of `size` bytes, unfiltered and packed."""
    generator = np.random.default_rng(seed)
    return chunk(b"IDAT", zlib.compress(b"".join(b"\0" + generator.bytes(size) for _ in range(count))))


def bmp(width, height, bits, compression, body, offset=54, colors=0, header=b""):
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(body), 0, 0, colors, 0)
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + info + header + body


def replaced(content, old, new):
    assert old in content
    return content.replace(old, new, 1)


def size_of_jpeg(content, height, width):
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4:]


GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
HOSTILE = {
    "zeros_within.jpg": lambda b: b["jpg"][:900] + bytes(200) + b["jpg"][1100:],
    "huge.jpg": lambda b: size_of_jpeg(b["jpg"], 65500, 65500),
    "no_height.jpg": lambda b: size_of_jpeg(b["jpg"], 0, WIDTH),
    "taller_than_its_data.jpg": lambda b: size_of_jpeg(b["jpg"], 4 * HEIGHT, WIDTH),
    "no_tables.jpg": lambda b: b["jpg"].replace(b"\xff\xc4", b"\xff\xfe"),
    "twelve_bits.jpg": lambda b: replaced(b["jpg"], b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c"),
    "nothing_within.jpg": lambda b: b"\xff\xd8\xff\xd9",
    "two_in_one.jpg": lambda b: b["jpg"] + b["jpg"],
    "huge.png": lambda b: png((100000, 100000, 8, 2, 0), rows(1, 3)),
    "no_width.png": lambda b: png((0, 7, 8, 2, 0), rows(7, 0)),
    "wrong_sum.png": lambda b: b["png"][:29] + bytes([b["png"][29] ^ 1]) + b["png"][30:],
    "no_data.png": lambda b: png((5, 5, 8, 2, 0)),
    "no_palette.png": lambda b: png((5, 5, 8, 3, 0), rows(5, 5)),
    "beyond_its_palette.png": lambda b: png((5, 5, 8, 3, 0), chunk(b"PLTE", bytes(range(6))), rows(5, 5)),
    "three_bits.png": lambda b: png((5, 5, 3, 0, 0), rows(5, 2)),
    "unknown_colours.png": lambda b: png((5, 5, 8, 5, 0), rows(5, 5)),
    "more_than_it_says.png": lambda b: png((5, 5, 8, 0, 0), rows(5000, 5)),
    "too_few_rows.png": lambda b: png((5, 50, 8, 0, 0), rows(5, 5)),
    "unknown_filter.png": lambda b: png((5, 1, 8, 0, 0), chunk(b"IDAT", zlib.compress(b"\x09" + bytes(5)))),
    "no_end.png": lambda b: png((5, 5, 8, 0, 0), rows(5, 5), end=False),
    "behind_its_end.png": lambda b: b["png"] + b"more" * 99,
    "interlaced.png": lambda b: png((8, 8, 8, 0, 1), chunk(b"IDAT", zlib.compress(bytes(15 + 64)))),
    "bomb_of_text.png": lambda b: png((5, 5, 8, 0, 0), chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**7))), rows(5, 5)),
    "wrong_length.webp": lambda b: b["webp"][:4] + struct.pack("<I", 2**32 - 2) + b["webp"][8:],
    "short_length.webp": lambda b: b["webp"][:4] + struct.pack("<I", 20) + b["webp"][8:],
    "nothing_within.webp": lambda b: b"RIFF" + struct.pack("<I", 4) + b"WEBP",
    "bottom_up.bmp": lambda b: bmp(5, -4, 24, 0, bytes(range(64))),
    "least_height.bmp": lambda b: bmp(5, -(2**31), 24, 0, bytes(64)),
    "data_beyond_its_end.bmp": lambda b: bmp(5, 4, 24, 0, bytes(64), offset=10**9),
    "many_colours.bmp": lambda b: bmp(5, 4, 8, 0, bytes(64), colors=2**31),
    "beyond_its_palette.bmp": lambda b: bmp(4, 4, 8, 0, bytes([7] * 16), offset=62, colors=2, header=bytes(8)),
    "run_lengths.bmp": lambda b: bmp(4, 4, 8, 1, b"\xff\1" * 9, offset=1078, colors=256, header=bytes(1024)),
    "unknown_packing.bmp": lambda b: bmp(5, 4, 24, 9, bytes(64)),
    "is_a_gif.jpg": lambda b: GIF,
    "is_a_tiff.jpg": lambda b: b"II*\0\x08\0\0\0\0\0",
    "is_a_jpeg.png": lambda b: b["jpg"],
    "animated.png": lambda b: b["apng"],
}
