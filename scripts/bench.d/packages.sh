# What only the benchmarks need, beside what scripts/setup installs.
# shellcheck shell=bash

# Package, and what it is for. One line each; read by `install_packages`.
bench_packages() {
    cat <<'LIST'
nginx-light serves the images on loopback
curl downloads for the peers
zstd peer and limit of zstd
xz-utils limit of xz
libdeflate-tools limit of gzip
isal limit of gzip (igzip)
bmap-tools peer (bmaptool)
qemu-utils peer (qemu-img)
openssl limit of sha256: it uses the processor's SHA instructions
udev coreos-installer waits for its events
python3 measures and reports
pkg-config builds coreos-installer
libssl-dev builds coreos-installer
libzstd-dev builds coreos-installer
liblzma-dev builds coreos-installer
LIST
}
