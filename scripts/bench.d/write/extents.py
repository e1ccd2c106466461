#!/usr/bin/env python3
"""Copies the data of a sparse file, its holes left out, to another file: what a writer has to put on the disk."""

import os
import sys

PIECE = 4 << 20


def main():
    source = os.open(sys.argv[1], os.O_RDONLY)
    size = os.fstat(source).st_size
    with open(sys.argv[2], "wb") as target:
        position = 0
        while position < size:
            try:
                start = os.lseek(source, position, os.SEEK_DATA)
            except OSError:
                break  # ENXIO: nothing but a hole follows
            position = os.lseek(source, start, os.SEEK_HOLE)
            os.lseek(source, start, os.SEEK_SET)
            left = position - start
            while left:
                data = os.read(source, min(left, PIECE))
                target.write(data)
                left -= len(data)


main()
