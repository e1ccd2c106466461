# Who runs: a group is an input and all who run in turn on it; a contestant is one pinned command line.
# shellcheck shell=bash

C_GROUP=() C_NAME=() C_KIND=() C_COMMAND=() C_PREPARE=() C_TRUTH=()

# contestant GROUP NAME KIND COMMAND [PREPARE] [TRUTH]: KIND is ours, peer or stage. PREPARE runs before the clock starts.
# TRUTH is a command line that prints the raw image, to compare the disk with.
contestant() {
    C_GROUP+=("$1") C_NAME+=("$2") C_KIND+=("$3") C_COMMAND+=("$4") C_PREPARE+=("${5:-}") C_TRUTH+=("${6:-}")
}

# Named by the issue: what everybody's dd is.
DD="dd bs=4M iflag=fullblock oflag=direct conv=fsync status=none"

# ours GROUP NAME TRUTH ARGS...
ours() {
    local group=$1 name=$2 truth=$3
    shift 3
    contestant "$group" "$name" ours \
        "$LANDFALL_AGENT write $* --disk $DEVICE --yes --force --progress none --report $WORK/ours.json" '' "$truth"
}

# coreos GROUP URL: it checks no digest here (--insecure): it knows signatures only. bmaptool checks those of the bmap.
peer_coreos() { contestant "$1" coreos-installer peer "$(coreos_installer) install --insecure --image-url $2 $DEVICE"; }
peer_bmaptool() { contestant "$1" bmaptool peer "bmaptool -q copy --bmap $SERVER/debian/disk.bmap $2 $DEVICE"; }
stage_download() { contestant "$1" download stage "curl -sSf -o /dev/null $2"; }
stage_sha256() { contestant "$1" "${3:-sha256}" stage "openssl dgst -sha256 $2"; }
# The image's data at one stretch and without its holes: no writer can have less to do.
stage_write() { contestant "$1" write stage "$DD if=$INPUTS/disk.img.data of=$DEVICE"; }

# The groups of the Debian image.
debian_contestants() {
    local raw="cat $INPUTS/disk.img" url

    url=$SERVER/debian/disk.img.zst
    ours zstd ours "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.img.zst")"
    contestant zstd "curl|zstd|dd" peer "curl -sSf $url | zstd -q -dc | $DD of=$DEVICE"
    peer_coreos zstd "$url"
    peer_bmaptool zstd "$url"
    ours zstd ours-raw-digest "$raw" --url "$url" --raw-digest "sha256:$(sha256_of "$INPUTS/disk.img")"
    ours zstd ours-read-back "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.img.zst")" --verify read-back
    stage_download zstd "$url"
    contestant zstd decode stage "zstd -q -dc $INPUTS/disk.img.zst >/dev/null"
    stage_write zstd
    stage_sha256 zstd "$INPUTS/disk.img.zst"
    stage_sha256 zstd "$INPUTS/disk.img" sha256-raw

    if wants packed; then make_packed "$INPUTS/disk.img" "$INPUTS/packed"; fi
    if [ -e "${PACKED:-}.zst" ]; then
        url=$SERVER/debian/${PACKED##*/}
        local index=(--url "$url.zst" --index "$url.index" --index-digest "sha256:$(sha256_of "$PACKED.index")")
        ours packed ours "$raw" "${index[@]}"
        ours packed ours-read-back "$raw" "${index[@]}" --verify read-back
        stage_download packed "$url.zst"
        contestant packed decode stage "zstd -q -dc $PACKED.zst >/dev/null"
        stage_write packed
        stage_sha256 packed "$PACKED.zst"
    elif wants packed; then
        fact failed.packed "landfall-image pack failed"
    fi

    url=$SERVER/debian/disk.img.gz
    ours gzip ours "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.img.gz")"
    peer_coreos gzip "$url"
    peer_bmaptool gzip "$url"
    stage_download gzip "$url"
    contestant gzip decode-libdeflate stage "libdeflate-gzip -dc $INPUTS/disk.img.gz >/dev/null"
    contestant gzip decode-igzip stage "igzip -dc $INPUTS/disk.img.gz >/dev/null"
    # The library that ours decodes with, alone.
    contestant gzip decode-zlib-rs stage "$GUNZIP $INPUTS/disk.img.gz"
    stage_write gzip
    stage_sha256 gzip "$INPUTS/disk.img.gz"

    url=$SERVER/debian/disk.img.xz
    ours xz ours "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.img.xz")"
    peer_coreos xz "$url"
    peer_bmaptool xz "$url"
    stage_download xz "$url"
    contestant xz decode stage "xz -q -T2 -dc $INPUTS/disk.img.xz >/dev/null"
    stage_write xz
    stage_sha256 xz "$INPUTS/disk.img.xz"

    # The download goes to memory, where an installer's scratch space is.
    url=$SERVER/debian/disk.qcow2
    ours qcow2 ours "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.qcow2")"
    contestant qcow2 "curl, qemu-img" peer \
        "curl -sSf -o $SCRATCH/disk.qcow2 $url && qemu-img convert -n -t none -f qcow2 -O raw $SCRATCH/disk.qcow2 $DEVICE"
    stage_download qcow2 "$url"
    contestant qcow2 decode stage \
        "qemu-img convert -n -f qcow2 --target-image-opts $INPUTS/disk.qcow2 driver=null-co,size=$(stat -c %s "$INPUTS/disk.img")"
    stage_write qcow2
    stage_sha256 qcow2 "$INPUTS/disk.qcow2"

    url=$SERVER/debian/disk.vmdk
    ours vmdk ours "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.vmdk")"
    contestant vmdk "curl, qemu-img" peer \
        "curl -sSf -o $SCRATCH/disk.vmdk $url && qemu-img convert -n -t none -f vmdk -O raw $SCRATCH/disk.vmdk $DEVICE"
    stage_download vmdk "$url"
    contestant vmdk decode stage \
        "qemu-img convert -n -f vmdk --target-image-opts $INPUTS/disk.vmdk driver=null-co,size=$(stat -c %s "$INPUTS/disk.img")"
    stage_write vmdk
    stage_sha256 vmdk "$INPUTS/disk.vmdk"

    url=$SERVER/debian/disk.img
    ours raw ours "$raw" --url "$url" --digest "sha256:$(sha256_of "$INPUTS/disk.img")"
    contestant raw "curl|dd" peer "curl -sSf $url | $DD of=$DEVICE"
    peer_coreos raw "$url"
    peer_bmaptool raw "$url"
    ours raw ours-bmap "$raw" --url "$url" --index "$SERVER/debian/disk.bmap" --index-digest "sha256:$(sha256_of "$INPUTS/disk.bmap")"
    stage_download raw "$url"
    stage_write raw
    stage_sha256 raw "$INPUTS/disk.img"
}

# sparse_contestants GIB: ours once each; the plain frame for its memory, the packed one for what zeros cost.
sparse_contestants() {
    local name=sparse-$1 raw="cat $SYNTHETIC/sparse-$1.img"
    ours sparse ours "$raw" --url "$SERVER/synthetic/$name.zst" --digest "sha256:$(sha256_of "$SYNTHETIC/$name.zst")"
    contestant sparse decode stage "zstd -q -dc $SYNTHETIC/$name.zst >/dev/null"
    make_packed "$SYNTHETIC/$name.img" "$SYNTHETIC/$name-packed"
    if [ ! -e "$PACKED.zst" ]; then
        fact failed.sparse.ours-packed "landfall-image pack failed"
        return
    fi
    local url=$SERVER/synthetic/${PACKED##*/}
    ours sparse ours-packed "$raw" --url "$url.zst" --index "$url.index" --index-digest "sha256:$(sha256_of "$PACKED.index")"
}

# sized_contestants GIB...
sized_contestants() {
    local gib file
    for gib in "$@"; do
        file=$SYNTHETIC/sized-$gib.zst
        ours sizes "ours-$gib" "zstd -q -dc $file" --url "$SERVER/synthetic/sized-$gib.zst" --digest "sha256:$(sha256_of "$file")"
    done
}
