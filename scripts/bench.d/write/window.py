#!/usr/bin/env python3
"""Prints how many bytes of memory a stream declares it needs: the window of zstd (RFC 8878, 3.1.1.1), the largest block
of xz, the window of DEFLATE (RFC 1951), the cluster of qcow2, the grain of VMDK; 0 for anything else."""

import struct
import subprocess
import sys


def zstd(head):
    descriptor = head[4]
    single, size_flag, dictionary = descriptor >> 5 & 1, descriptor >> 6, (0, 1, 2, 4)[descriptor & 3]
    if not single:
        exponent, mantissa = head[5] >> 3, head[5] & 7
        base = 1 << (10 + exponent)
        return base + base // 8 * mantissa
    length = (1, 2, 4, 8)[size_flag]
    return int.from_bytes(head[5 + dictionary:][:length], "little") + (256 if length == 2 else 0)


def xz(path):
    lines = subprocess.run(["xz", "--robot", "-lvv", path], check=True, capture_output=True, text=True).stdout
    blocks = [line.split("\t") for line in lines.splitlines() if line.startswith("block\t")]
    return max(int(block[7]) for block in blocks)


def main():
    path = sys.argv[1]
    with open(path, "rb") as file:
        head = file.read(32)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return zstd(head)
    if head.startswith(b"\xfd7zXZ\0"):
        return xz(path)
    if head.startswith(b"\x1f\x8b"):
        return 32 << 10
    if head.startswith(b"QFI\xfb"):
        return 1 << struct.unpack(">I", head[20:24])[0]
    if head.startswith(b"KDMV"):
        return struct.unpack("<Q", head[20:28])[0] << 9
    return 0


print(main())
