# Shared by Landfall's scripts: `source` it first. Sets strict mode, cache directories and a few helpers.
# shellcheck shell=bash
set -euo pipefail
# Without it a failure inside $(…) goes unseen.
shopt -s inherit_errexit

LANDFALL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LANDFALL_CACHE=${LANDFALL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/landfall}
export LANDFALL_ROOT LANDFALL_CACHE
# Each checkout builds into a folder of its own: cargo names the crates of a workspace by relative paths and judges them by
# time, so that of two checkouts in one folder one would take the other's code as fresh.
CHECKOUT_TARGET=$LANDFALL_CACHE/target/$(basename "$LANDFALL_ROOT")-$(printf %s "$LANDFALL_ROOT" | sha256sum | cut -c1-12)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CHECKOUT_TARGET}
# Incremental compilation keeps a second copy of every crate: more than half of the cache.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
# The tools of the boot image live in /sbin, which `su` and some CI shells leave out; what setup could only unpack comes last.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:$LANDFALL_CACHE/tools/bin"

# What the demo and the tests together may leave in the cache; README names it.
CACHE_MIB=6144

log() { printf '%s\n' "$*" >&2; }
die() { log "error: $*"; exit 1; }

# shellcheck source=scripts/packages.sh
source "$LANDFALL_ROOT/scripts/packages.sh"

# need_root ARGS...: starts this script again through sudo unless it runs as root already.
need_root() {
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null || die "this needs root, and there is no sudo; run it as root"
    log "this needs root; asking sudo"
    # sudo resets PATH and HOME; cargo and the cache are the caller's.
    exec sudo -- env PATH="$PATH" HOME="$HOME" LANDFALL_CACHE="$LANDFALL_CACHE" CARGO_TARGET_DIR="$CARGO_TARGET_DIR" \
        LANDFALL_IMAGE="${LANDFALL_IMAGE:-}" LANDFALL_AGENT="${LANDFALL_AGENT:-}" http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" "$0" "$@"
}

# Makes cache directories, owned by the person who called sudo: their next run without it must be able to use them.
cache_dir() {
    local directory
    for directory in "$@"; do
        [ -d "$directory" ] && continue
        mkdir -p "$directory"
        [ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$LANDFALL_CACHE" "$directory"
    done
}

# prune_cache: removes all but the newest images and kernels, and none that was used within four hours: another checkout may run
# its tests with it, the full set for up to three.
prune_cache() {
    local kind stamp old
    for kind in artefacts/boot-vm-:3 artefacts/boot-server-:1 artefacts/os-mini-:2 artefacts/os-debian-:2 artefacts/tools-storage-:2 artefacts/tools-none-:1 artefacts/root-tar-:1 artefacts/kernel-:2 artefacts/switch-:2 artefacts/arm64-packages-:1 artefacts/arm64-images-:2 artefacts/shim-:1 tools/qemu-system-x86_:1 tools/qemu-system-arm_:1 tools/sushy-:1; do
        find "$LANDFALL_CACHE/$(dirname "$kind")" -maxdepth 1 -name "$(basename "${kind%:*}")*" -printf '%T@ %p\n' 2>/dev/null | sort -rn |
            tail -n "+$((${kind#*:} + 1))" | while read -r stamp old; do
            [ "${stamp%.*}" -gt $(($(date +%s) - 14400)) ] || rm -rf --one-file-system "$old"
        done || true
    done
}

# used PATH: prints the path of an image or a tree, and notes that it is in use.
used() {
    touch "$1"
    printf '%s\n' "$1"
}

# cache_size: what the cache takes, and what to do about it if it is more than README promises.
cache_size() {
    local size
    prune_cache || true
    size=$(du -sm "$LANDFALL_CACHE" 2>/dev/null | cut -f1)
    echo "cache: ${size:-0} of at most $CACHE_MIB MiB in $LANDFALL_CACHE"
    [ "${size:-0}" -le "$CACHE_MIB" ] ||
        echo "  builds of earlier versions and of other checkouts are in it: rm -rf $LANDFALL_CACHE/target frees them, and costs one full build"
}

# What `cargo build` names the host, as .cargo/config.toml's build.target = "host-tuple" resolves it.
host_tuple() { rustc -vV | sed -n 's/^host: //p'; }

# prepare_target: makes this checkout's build folder. A new one begins with the compiled dependencies of the checkout that was
# built last: what comes from a registry is the same in every checkout.
prepare_target() {
    [ "$CARGO_TARGET_DIR" = "$CHECKOUT_TARGET" ] && [ ! -e "$CHECKOUT_TARGET/checkout" ] || return 0
    cache_dir "$LANDFALL_CACHE/target"
    with_lock "target-$(basename "$CHECKOUT_TARGET")" _prepare_target
}

_prepare_target() {
    local other temporary
    [ ! -e "$CHECKOUT_TARGET/checkout" ] || return 0
    temporary=$(mktemp -d "$LANDFALL_CACHE/target/.new.XXXXXX")
    chmod 755 "$temporary"
    other=$(find "$LANDFALL_CACHE/target" -mindepth 2 -maxdepth 2 -name checkout -printf '%T@ %h\n' | sort -rn | head -n 1 | cut -d' ' -f2-)
    if [ -n "$other" ]; then
        log "beginning with the compiled dependencies of $(cat "$other/checkout")"
        # Of cargo's folders what is compiled once; nothing of a crate of this workspace, and no test program. A build there may go
        # on meanwhile: what it removes is no loss, and cargo compiles again what came over in part.
        (cd "$other" && find . \( -name '*landfall*' -o -name incremental -o -name 'rmeta??????' -o -path ./fuzz \) -prune -o -type f \
            \( -path '*/.fingerprint/*' -o -path '*/build/*' -o -path '*/deps/*.rlib' -o -path '*/deps/*.rmeta' \
            -o -path '*/deps/*.so' -o -path '*/deps/*.d' \) -print0 | tar --null --no-recursion --ignore-failed-read -T - -c) | tar -x -C "$temporary"
    fi
    printf '%s\n' "$LANDFALL_ROOT" >"$temporary/checkout"
    rm -rf --one-file-system "$CHECKOUT_TARGET"
    mv -T "$temporary" "$CHECKOUT_TARGET"
}

# release_bin NAME: path of a release binary (built or not). The agent has a profile of its own in Cargo.toml.
release_bin() {
    local profile=release
    [ "$1" != landfall-agent ] || profile=agent
    printf '%s/%s/%s/%s\n' "$CARGO_TARGET_DIR" "$(host_tuple)" "$profile" "$1"
}

# build_release PACKAGE...: builds them all in one cargo call (one resolution of features, one lock), and the agent in another.
build_release() {
    local args=() package
    prepare_target
    for package in "$@"; do
        if [ "$package" = landfall-agent ]; then
            (cd "$LANDFALL_ROOT" && cargo build --profile agent --locked -p landfall-agent >&2)
        else
            args+=(-p "$package")
        fi
    done
    [ ${#args[@]} = 0 ] || (cd "$LANDFALL_ROOT" && cargo build --release --locked "${args[@]}" >&2)
}

# build_programs: every program, as the demo and the tests use them. A call for fewer would resolve other features of what they
# share, and compile that again.
build_programs() {
    build_release landfall-agent landfall-worker landfall-coordinator landfall landfall-image landfall-lab
}

# landfall_image ARGS...: the image tool; LANDFALL_IMAGE names a ready one, otherwise it is built.
landfall_image() {
    if [ -z "${LANDFALL_IMAGE:-}" ]; then
        build_release landfall-image
        LANDFALL_IMAGE=$(release_bin landfall-image)
    fi
    "$LANDFALL_IMAGE" "$@"
}

# with_lock NAME COMMAND...: one at a time per name, across processes; the lock goes when the command ends.
with_lock() {
    local name=$1
    shift
    cache_dir "$LANDFALL_CACHE/locks"
    local lock=$LANDFALL_CACHE/locks/$name.lock
    # Opened for reading: a lock file that root made serves everybody.
    [ -e "$lock" ] || : >>"$lock"
    (
        flock --wait 3600 9 || die "waited an hour for $lock; is another build stuck?"
        "$@" 9>&-
    ) 9<"$lock"
}

# offered_versions NAME...: name=version of each package: apt's candidate, or the best version that an archive offers if the
# candidate is only installed (a machine may be newer than its archive). Fails if no archive offers one of them.
offered_versions() {
    LC_ALL=C apt-cache policy "$@" | awk -v wanted=$# '
        function finish() { if (best != "") { print name "=" best; found++ } }
        /^[^ ]/ { finish(); sub(/:$/, ""); name = $0; best = ""; highest = -100000; next }
        $1 == "Candidate:" { candidate = $2 }
        /^     [^ ]/ || /^ [*][*][*] / { version = $(NF - 1) }
        /^        / && $2 != "/var/lib/dpkg/status" {
            priority = version == candidate ? 100000 : $1
            if (priority > highest) { highest = priority; best = version }
        }
        END { finish(); exit found != wanted }'
}

# kernel_package: name=version of the newest kernel package Debian offers, such as linux-image-6.1.0-35-amd64=6.1.137-1.
kernel_package() {
    local name
    apt_refresh
    name=$(LC_ALL=C apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }')
    [ -n "$name" ] || die "apt knows no linux-image-amd64; check the sources in /etc/apt and run apt-get update"
    offered_versions "$name" || die "no archive offers $name; check the sources in /etc/apt and run apt-get update"
}

# _unpacked TREE PACKAGE: downloads a package and unpacks it there; installs nothing.
_unpacked() {
    local tree=$1 package=$2 temporary
    [ -d "$tree" ] && return
    temporary=$(mktemp -d "$LANDFALL_CACHE/artefacts/.unpacked.XXXXXX")
    # apt checks the file against the signed lists; its sandbox user must be able to write here.
    chmod 755 "$temporary"
    log "downloading $package"
    if ! (cd "$temporary" && apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$package" >&2); then
        # A list older than the archive names a package that is gone.
        apt-get -qq -o DPkg::Lock::Timeout=300 update >&2 || true
        (cd "$temporary" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) || {
            rm -rf "$temporary"
            die "cannot download $package"
        }
    fi
    mkdir "$temporary/tree"
    dpkg-deb -x "$temporary"/*.deb "$temporary/tree"
    rm -f "$temporary"/*.deb
    mv -T "$temporary/tree" "$tree"
    rmdir "$temporary"
}

# unpacked_package KIND PACKAGE[=VERSION]: prints the directory of the unpacked package, downloading it once per version.
unpacked_package() {
    local tree=$LANDFALL_CACHE/artefacts/$1-${2//[^A-Za-z0-9.+-]/_}
    cache_dir "$LANDFALL_CACHE/artefacts"
    [ -d "$tree" ] || with_lock "$1" _unpacked "$tree" "$2"
    used "$tree"
}

# kernel_tree: prints the directory of the unpacked kernel package, downloading it once per version.
kernel_tree() {
    local package
    package=$(kernel_package)
    unpacked_package kernel "$package"
}

# shim_tree: prints the directory of Debian's shim, unpacked: installed, it would change this machine's boot loader.
shim_tree() {
    local package
    apt_refresh
    package=$(offered_versions shim-signed) || die "no archive offers shim-signed; check the sources in /etc/apt and run apt-get update"
    unpacked_package shim "$package"
}

# vm_firmware: prints OVMF_CODE and OVMF_VARS, whichever size Debian ships.
vm_firmware() {
    local size
    for size in _4M ''; do
        if [ -f "/usr/share/OVMF/OVMF_CODE$size.fd" ]; then
            printf '%s %s\n' "/usr/share/OVMF/OVMF_CODE$size.fd" "/usr/share/OVMF/OVMF_VARS$size.fd"
            return
        fi
    done
    die "no OVMF firmware under /usr/share/OVMF; run scripts/setup"
}

# as_root COMMAND...: runs one command as root, through sudo unless this is root already.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
        return
    fi
    command -v sudo >/dev/null || die "this needs root, and there is no sudo; run it as root"
    sudo -- env PATH="$PATH" HOME="$HOME" LANDFALL_CACHE="$LANDFALL_CACHE" LANDFALL_ACCEL="${LANDFALL_ACCEL:-}" \
        LANDFALL_POWER_SEED="${LANDFALL_POWER_SEED:-}" "$@"
}

_boot_image() {
    local directory=$1 agent=$2 tree=$3 profile=$4 temporary
    [ -d "$directory" ] && return
    temporary=$(mktemp -d "$LANDFALL_CACHE/artefacts/.boot.XXXXXX")
    landfall_image initramfs --kernel-tree "$tree" --agent "$agent" --profile "$profile" \
        -o "$temporary/initramfs.zst" --kernel-out "$temporary/vmlinuz" >&2
    landfall_image uki --kernel "$temporary/vmlinuz" --initramfs "$temporary/initramfs.zst" -o "$temporary/landfall.efi" >&2
    chmod 755 "$temporary"
    mv -T "$temporary" "$directory"
}

# switch_image: prints the initramfs of the switch that tests of bonds and VLANs put between a machine and its network.
switch_image() {
    local tree key file
    tree=$(kernel_tree)
    key=$({ cat "$LANDFALL_ROOT/tests/qemu/switch/init" "$(release_bin landfall-image)"; echo "$tree"; } | sha256sum | cut -c1-24)
    file=$LANDFALL_CACHE/artefacts/switch-$key
    [ -f "$file" ] || landfall_image initramfs --kernel-tree "$tree" --profile none --plain-modules --module virtio_pci --module virtio_net \
        --module bonding --module 8021q --module bridge --init "$LANDFALL_ROOT/tests/qemu/switch/init" \
        --file /bin/busybox:/bin/busybox:0755 --level 3 -o "$file" >&2
    used "$file"
}

_arm64_tree() {
    local tree=$1 temporary apt kernel deb
    [ -d "$tree" ] && return
    temporary=$(mktemp -d "$LANDFALL_CACHE/artefacts/.arm64.XXXXXX")
    # This runs in a subshell of its own.
    # shellcheck disable=SC2064
    trap "rm -rf --one-file-system '$temporary'" EXIT
    chmod 755 "$temporary"
    mkdir -p "$temporary"/{debs,tree,state/lists/partial,cache/archives/partial}
    # Lists of its own: the system's know another processor's packages only where a person added it.
    apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$temporary/state" -o Dir::State::status=/dev/null
        -o Dir::Cache="$temporary/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3)
    log "downloading the kernel of Debian for arm64"
    apt-get "${apt[@]}" update >&2 || die "cannot fetch Debian's lists of arm64"
    kernel=$(LC_ALL=C apt-cache "${apt[@]}" depends linux-image-arm64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }' || true)
    [ -n "$kernel" ] || die "apt's sources offer no linux-image-arm64"
    (cd "$temporary/debs" && apt-get "${apt[@]}" download "$kernel" systemd-boot-efi grub-efi-arm64-bin busybox-static >&2) || die "cannot download $kernel"
    for deb in "$temporary"/debs/*.deb; do dpkg-deb -x "$deb" "$temporary/tree"; done
    mv -T "$temporary/tree" "$tree"
}

_arm64_images() {
    local directory=$1 tree=$2 temporary
    [ -d "$directory" ] && return
    temporary=$(mktemp -d "$LANDFALL_CACHE/artefacts/.arm64.XXXXXX")
    # As above.
    # shellcheck disable=SC2064
    trap "rm -rf --one-file-system '$temporary'" EXIT
    landfall_image initramfs --kernel-tree "$tree" --agent "$LANDFALL_ROOT/tests/qemu/arm64/init" --file "$tree/bin/busybox:/bin/busybox:0755" \
        --plain-modules --level 3 -o "$temporary/initramfs.zst" --kernel-out "$temporary/vmlinuz" >&2
    landfall_image uki --kernel "$temporary/vmlinuz" --initramfs "$temporary/initramfs.zst" \
        --stub "$tree/usr/lib/systemd/boot/efi/linuxaa64.efi.stub" -o "$temporary/landfall.efi" >&2
    landfall_image iso --kernel "$temporary/vmlinuz" --initramfs "$temporary/initramfs.zst" --grub "$tree/usr/lib/grub" \
        --command-line "console=ttyAMA0 landfall.medium=1" -o "$temporary/landfall.iso" >&2
    rm "$temporary/vmlinuz" "$temporary/initramfs.zst"
    chmod 755 "$temporary"
    mv -T "$temporary" "$directory"
}

# arm64_images: prints a directory with landfall.efi and landfall.iso for arm64: Debian's kernel, the drivers for VMs, and a script in
# the agent's place. Debian's packages are fetched anew each month.
arm64_images() {
    local tree key directory
    tree=$LANDFALL_CACHE/artefacts/arm64-packages-$(date +%Y-%m)
    cache_dir "$LANDFALL_CACHE/artefacts"
    [ -d "$tree" ] || with_lock arm64 _arm64_tree "$tree"
    used "$tree" >/dev/null
    key=$({ cat "$LANDFALL_ROOT/tests/qemu/arm64/init" "$(release_bin landfall-image)"; echo "$tree"; } | sha256sum | cut -c1-24)
    directory=$LANDFALL_CACHE/artefacts/arm64-images-$key
    [ -d "$directory" ] || with_lock arm64 _arm64_images "$directory" "$tree"
    used "$directory"
}

_redfish_server() {
    local tree=$1 temporary
    if [ ! -d "$tree" ]; then
        temporary=$(mktemp -d "$LANDFALL_CACHE/tools/.sushy.XXXXXX")
        # This runs in a subshell of its own.
        # shellcheck disable=SC2064
        trap "rm -rf --one-file-system '$temporary'" EXIT
        log "installing sushy-tools, the Redfish server of the lab, in $tree"
        python3 -m venv "$temporary/venv" >&2 || die "cannot make a virtual environment of Python; run scripts/setup --full"
        "$temporary/venv/bin/pip" install --quiet --disable-pip-version-check --no-input \
            --requirement "$LANDFALL_ROOT/tests/qemu/redfish/requirements.txt" >&2 || die "pip cannot install sushy-tools; see above"
        mv -T "$temporary/venv" "$tree"
        rmdir "$temporary"
    fi
    # Pip's own command names the folder that the environment was made in.
    printf '#!/bin/sh\nexec %q -c "import sys; from sushy_tools.emulator.main import main; sys.exit(main())" "$@"\n' "$tree/bin/python" \
        >"$LANDFALL_CACHE/tools/bin/.sushy"
    chmod 755 "$LANDFALL_CACHE/tools/bin/.sushy"
    mv -T "$LANDFALL_CACHE/tools/bin/.sushy" "$LANDFALL_CACHE/tools/bin/sushy-emulator"
}

# redfish_server: makes the command sushy-emulator, of the versions in tests/qemu/redfish/requirements.txt.
redfish_server() {
    local key tree
    key=$({ cat "$LANDFALL_ROOT/tests/qemu/redfish/requirements.txt"; python3 --version; } | sha256sum | cut -c1-24)
    tree=$LANDFALL_CACHE/tools/sushy-$key
    cache_dir "$LANDFALL_CACHE/tools" "$LANDFALL_CACHE/tools/bin"
    with_lock sushy _redfish_server "$tree"
    used "$tree" >/dev/null
}

# boot_image [PROFILE]: prints the directory with vmlinuz, initramfs.zst and both as landfall.efi, packed from the release agent with the drivers of a
# profile (vm by default); `build_release` first.
boot_image() {
    local profile=${1:-vm} agent tree key directory
    agent=$(release_bin landfall-agent)
    tree=$(kernel_tree)
    key=$({ sha256sum <"$agent"; sha256sum <"$(release_bin landfall-image)"; echo "$tree"; } | sha256sum | cut -c1-24)
    directory=$LANDFALL_CACHE/artefacts/boot-$profile-$key
    [ -d "$directory" ] || with_lock "boot-$profile" _boot_image "$directory" "$agent" "$tree" "$profile"
    used "$directory"
}
