#!/usr/bin/env python3
"""Compares a written disk with the raw image on standard input: every byte of every partition, and the entries.

    check.py DEVICE <IMAGE

The table's own sectors differ by design (the receipt's entry, the disk's size, checksums), so entries are compared
instead: each of the image's must be on the disk. Of LBA 0 the boot code is compared. Exits 1 at the first difference,
saying where.
"""

import os
import struct
import sys

SECTOR = 512
PIECE = 4 << 20
# Boot code of the protective MBR: up to the disk signature.
BOOT_CODE = 440


def entries(head, whose):
    """The used entries of a GPT: (types, first, last, attributes, name) as raw bytes, by first LBA."""
    header = head[SECTOR:SECTOR + 92]
    if header[:8] != b"EFI PART":
        sys.exit(f"check: {whose} has no GPT")
    at, count, size = struct.unpack("<QII", header[72:88])
    table = head[at * SECTOR:at * SECTOR + count * size]
    used = (table[i:i + 128] for i in range(0, len(table), size))
    return sorted((e for e in used if any(e[:16])), key=lambda e: e[32:40][::-1])


def exactly(stream, count):
    """Reads `count` bytes, or stops: standard input may be a pipe."""
    data = bytearray()
    while len(data) < count:
        piece = stream.read(count - len(data))
        if not piece:
            sys.exit(f"check: the image ended {count - len(data)} bytes early")
        data += piece
    return bytes(data)


def main():
    image = os.fdopen(0, "rb", buffering=0)
    device = open(sys.argv[1], "rb", buffering=0)
    head = exactly(image, 1 << 20)
    on_disk = device.read(1 << 20)
    wanted, found = entries(head, "the image"), entries(on_disk, "the disk")
    for entry in wanted:
        if entry not in found:
            sys.exit(f"check: the image's partition at LBA {struct.unpack('<Q', entry[32:40])[0]} is not on the disk")
    if head[:BOOT_CODE] != on_disk[:BOOT_CODE]:
        sys.exit("check: the boot code differs")

    position, compared = len(head), 0
    for entry in wanted:
        first, last = struct.unpack("<QQ", entry[32:48])
        start, end = first * SECTOR, (last + 1) * SECTOR
        if start < position:
            # Within the first MiB, such as a BIOS boot partition at LBA 34.
            stop = min(end, len(head))
            if head[start:stop] != on_disk[start:stop]:
                sys.exit(f"check: the partition at byte {start} differs")
            compared += stop - start
            start = stop
        while position < start:
            position += len(exactly(image, min(PIECE, start - position)))
        device.seek(start)
        while start < end:
            count = min(PIECE, end - start)
            if exactly(image, count) != exactly(device, count):
                sys.exit(f"check: the disk differs within {count} bytes from byte {start}")
            start += count
            compared += count
        position = max(position, end)
    # The pipe's writer must not be killed by a closed pipe.
    while image.read(PIECE):
        pass
    print(f"check: {len(wanted)} partitions, {compared} bytes equal")


main()
