# The inputs made of the real Debian image, once, kept in the cache by content.
# shellcheck shell=bash

# make_once FILE COMMAND...: runs the command with a temporary name as its last argument and renames it when done.
make_once() {
    local file=$1 begun=$SECONDS
    shift
    [ ! -e "$file" ] || return 0
    need_space 3
    rm -f "$file.making"
    "$@" "$file.making"
    mv "$file.making" "$file"
    log "made ${file##*/}: $(($(stat -c %s "$file") >> 20)) MiB in $((SECONDS - begun)) s"
}

# need_space GIB: dies if the cache's file system has less.
need_space() {
    local free
    free=$(($(stat -f -c '%a * %S' "$BENCH") >> 30))
    [ "$free" -ge "$1" ] || die "$BENCH has $free GiB free, and $1 GiB are needed"
}

# sha256_of FILE: its digest, computed once.
sha256_of() {
    [ -e "$1.sha256" ] || openssl dgst -sha256 -r "$1" | cut -d' ' -f1 >"$1.sha256"
    cat "$1.sha256"
}

_raw() {
    zstd -q -d --sparse -o "$2" "$1"
    # Down to single blocks, whatever zstd left.
    fallocate --dig-holes "$2"
    # bmaptool asks the file system where the holes are.
    sync "$2"
}
_zstd() { zstd -q -3 -T2 -o "$2" "$1"; }
_gzip() { gzip -1 -n -c "$1" >"$2"; }
_xz() { xz -1 -T2 -c "$1" >"$2"; }
_qcow2() { qemu-img convert -c -f raw -O qcow2 -o compression_type=zlib "$1" "$2"; }
_vmdk() { qemu-img convert -f raw -O vmdk -o subformat=streamOptimized "$1" "$2"; }
_bmap() { bmaptool -q create -o "$2" "$1"; }
_data() { "$HERE/extents.py" "$1" "$2"; }
# The index names no file, so that both can be renamed.
_packed() { landfall_image pack "$1" -o "$3" --index "$2" >/dev/null; }

# make_inputs IMAGE.zst: sets INPUTS, the directory with everything made of this image.
make_inputs() {
    local key
    # By the image's content and by how the inputs are made.
    key=$({ sha256sum <"$1"; sha256sum <"$HERE/inputs.sh"; sha256sum <"$HERE/extents.py"; } | sha256sum | cut -c1-16)
    INPUTS=$BENCH/write-$key
    # Another image's or another recipe's: gigabytes that nothing will ask for again.
    find "$BENCH" -maxdepth 1 -name 'write-*' ! -name "write-$key" -exec rm -rf --one-file-system {} +
    mkdir -p "$INPUTS"
    make_once "$INPUTS/disk.img" _raw "$1"
    make_once "$INPUTS/disk.img.data" _data "$INPUTS/disk.img"
    make_once "$INPUTS/disk.img.zst" _zstd "$INPUTS/disk.img"
    make_once "$INPUTS/disk.img.gz" _gzip "$INPUTS/disk.img"
    make_once "$INPUTS/disk.img.xz" _xz "$INPUTS/disk.img"
    make_once "$INPUTS/disk.qcow2" _qcow2 "$INPUTS/disk.img"
    make_once "$INPUTS/disk.vmdk" _vmdk "$INPUTS/disk.img"
    make_once "$INPUTS/disk.bmap" _bmap "$INPUTS/disk.img"
}

# make_packed RAW NAME: NAME.packed.zst and NAME.index beside it, again whenever landfall-image changes; sets PACKED to
# their common name, or to nothing if this landfall-image cannot pack.
make_packed() {
    local key
    key=$(sha256sum <"$LANDFALL_IMAGE" | cut -c1-12)
    PACKED=$2-$key
    if [ ! -e "$PACKED.zst" ]; then
        rm -f "$2"-????????????.zst "$2"-????????????.zst.sha256 "$2"-????????????.index "$2"-????????????.index.sha256
        # In a subshell, and not in a condition: a failure is a row of the table, not the end.
        local status=0
        set +e
        (set -e; make_once "$PACKED.zst" _packed "$1" "$PACKED.index")
        status=$?
        set -e
        if [ "$status" != 0 ]; then
            rm -f "$PACKED.zst.making"
            log "landfall-image pack failed; the rows of the packed image will say so"
        fi
    fi
}
