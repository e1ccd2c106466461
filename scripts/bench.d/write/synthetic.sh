# Inputs that no real image gives: exact sizes of real data, and a disk far larger than its data.
# shellcheck shell=bash

# Hexadecimal digits of an AES-CTR keystream: nothing repeats, so no match saves work, and every byte carries 4 bits, so
# that zstd halves it. The same every time.
keystream_text() (
    # openssl never ends by itself: the closed pipe ends it, which is no failure.
    set +o pipefail
    openssl enc -aes-128-ctr -nosalt -K 00000000000000000000000000000002 -iv 00000000000000000000000000000000 \
        -in /dev/zero 2>/dev/null | python3 -c '
import sys
left = int(sys.argv[1])
while left:
    piece = sys.stdin.buffer.read(min(left, 4 << 20) // 2).hex().encode()
    sys.stdout.buffer.write(piece)
    left -= len(piece)
' "$1"
)

# empty_disk FILE MIB: a sparse disk with one partition, from 1 MiB to 1 MiB before the end.
empty_disk() {
    rm -f "$1"
    truncate -s "${2}M" "$1"
    sgdisk --disk-guid=00000000-0000-4000-8000-000000000001 \
        --new=1:2048:$(($2 * 2048 - 2049)) --typecode=1:8300 --partition-guid=1:00000000-0000-4000-8000-000000000002 \
        "$1" >/dev/null
}

# Streamed: the raw image, as large as 8 GiB, never lies on the disk.
_sized() {
    local mib=$(($1 * 1024)) table=$WORK/sized.table
    empty_disk "$table" "$mib"
    {
        head -c 1M "$table"
        keystream_text $(((mib - 2) << 20))
        tail -c 1M "$table"
    } | zstd -q -3 -T2 --stream-size=$((mib << 20)) -o "$2"
    rm -f "$table"
}

_sparse_raw() {
    empty_disk "$2" $(($1 * 1024))
    # A little data at the start, in the middle and at the end of the partition.
    local at
    for at in 1 $(($1 * 512)) $(($1 * 1024 - 17)); do
        keystream_text $((16 << 20)) | dd of="$2" bs=1M seek="$at" conv=notrunc iflag=fullblock status=none
    done
}

_sparse() { zstd -q -3 -T2 -o "$2" "$1"; }

# make_sized GIB...: sized-N.zst for each, one frame.
make_sized() {
    local gib
    for gib in "$@"; do
        [ -e "$SYNTHETIC/sized-$gib.zst" ] || need_space $((gib / 2 + 2))
        make_once "$SYNTHETIC/sized-$gib.zst" _sized "$gib"
        sha256_of "$SYNTHETIC/sized-$gib.zst" >/dev/null
    done
}

# make_sparse GIB: sparse-N.img and sparse-N.zst, one frame.
make_sparse() {
    make_once "$SYNTHETIC/sparse-$1.img" _sparse_raw "$1"
    make_once "$SYNTHETIC/sparse-$1.zst" _sparse "$SYNTHETIC/sparse-$1.img"
    sha256_of "$SYNTHETIC/sparse-$1.zst" >/dev/null
}
