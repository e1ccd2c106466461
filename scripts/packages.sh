# The Debian packages that the scripts use: which are missing, how they are installed, and what happens where one conflicts
# with a package of the user's. Sourced by lib.sh.
# shellcheck shell=bash

# Package, and what it is for. One line each; read by `install_packages`.
landfall_packages() {
    cat <<'LIST'
qemu-system-x86 the machines of the lab
ovmf UEFI firmware for them
ipxe undionly.kpxe and snponly.efi, the boot loaders served over TFTP
dnsmasq-base the network's own DHCP server in the ProxyDHCP tests
mmdebstrap builds the Debian image
mtools fills the EFI system partition without mounting it
dosfstools checks it
e2fsprogs makes and reads ext4 without mounting it
xfsprogs makes XFS in the tests of installed systems
btrfs-progs makes btrfs there
lvm2 makes volume groups in the tests of storage
gdisk checks partition tables
fdisk checks partition tables
grub-pc-bin boot loader for BIOS
grub-efi-amd64-bin boot loader for UEFI
grub-common grub-mkimage
systemd-boot-efi the stub that a unified kernel image is made of
busybox-static user space of the small test image
squashfs-tools makes the tools layer
xorriso makes the boot medium
sbsigntool proves signatures for Secure Boot in a test
zstd opens images on the command line
openssl makes incompressible filler for test images
qemu-utils makes and reads qcow2 and vmdk in the tests of formats
xz-utils compresses for them
bzip2 likewise
lz4 likewise
postgresql the database of several coordinators, in the tests of the store
pgbouncer pools connections to it there
docker-registry holds OCI artefacts in the tests of sources
gnupg makes OpenPGP signatures in the tests of proofs
minisign makes its own kind of them there
ignition reads what the action ignition wrote, in a test
swtpm the machines' TPM
swtpm-tools makes its keys and certificates
openipmi the machines' BMC
iproute2 network namespaces, bridges and taps
LIST
}

# What only the full set of end-to-end tests needs, likewise.
full_packages() {
    cat <<'LIST'
tinyproxy-bin a site's proxy, in the tests of networks
qemu-system-arm an arm64 machine there
qemu-efi-aarch64 UEFI firmware for it
python3-venv a folder of its own for sushy-tools, the machines' Redfish server
LIST
}

# Fills apt's lists if they are empty (a fresh container) or older than a day. Serialised: apt has one lock.
apt_refresh() {
    local newest
    newest=$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -newermt '-1 day' -print -quit 2>/dev/null || true)
    [ -n "$newest" ] && return
    if ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 && [ "${1:-}" != force ]; then return; fi
    log "apt-get update"
    apt-get -qq -o DPkg::Lock::Timeout=300 update || log "apt-get update failed for some source; going on with what there is"
}

# function_of PACKAGE: the program or file that the package is installed for. Where it is there, the function is, whichever
# package it came from: a newer version, a backport, a build by hand.
function_of() {
    case $1 in
    qemu-system-x86) echo qemu-system-x86_64 ;;
    qemu-system-arm) echo qemu-system-aarch64 ;;
    qemu-efi-aarch64) echo /usr/share/AAVMF/AAVMF_CODE.fd ;;
    qemu-utils) echo qemu-img ;;
    tinyproxy-bin) echo tinyproxy ;;
    ovmf) if [ -f /usr/share/OVMF/OVMF_CODE.fd ]; then echo /usr/share/OVMF/OVMF_CODE.fd; else echo /usr/share/OVMF/OVMF_CODE_4M.fd; fi ;;
    ipxe) echo /usr/lib/ipxe/snponly.efi ;;
    dnsmasq-base) echo dnsmasq ;;
    mmdebstrap | zstd | g++ | openssl | bzip2 | lz4 | docker-registry | minisign | curl | python3) echo "$1" ;;
    pgbouncer) echo /usr/sbin/pgbouncer ;;
    # Not in the search path: each version has a directory of its own.
    postgresql) set -- /usr/lib/postgresql/*/bin/initdb && echo "$1" ;;
    mtools) echo mcopy ;;
    dosfstools) echo fsck.fat ;;
    e2fsprogs) echo mkfs.ext4 ;;
    xfsprogs) echo mkfs.xfs ;;
    btrfs-progs) echo mkfs.btrfs ;;
    lvm2) echo lvm ;;
    gdisk) echo sgdisk ;;
    fdisk) echo sfdisk ;;
    grub-common) echo grub-mkimage ;;
    xz-utils) echo xz ;;
    gnupg) echo gpg ;;
    squashfs-tools) echo mksquashfs ;;
    xorriso) echo xorriso ;;
    iproute2) echo ip ;;
    systemd-boot-efi) echo /usr/lib/systemd/boot/efi/linuxx64.efi.stub ;;
    sbsigntool) echo sbverify ;;
    swtpm) echo swtpm ;;
    swtpm-tools) echo swtpm_setup ;;
    openipmi) echo ipmi_sim ;;
    ignition) echo /usr/lib/dracut/modules.d/30ignition/ignition ;;
    esac
}

# installed PACKAGE: whether it, or another package with the same function, is installed.
installed() {
    local function
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" != installed ] || return 0
    function=$(function_of "$1")
    case $function in
    '') return 1 ;;
    /*) [ -e "$function" ] ;;
    *) command -v "$function" >/dev/null ;;
    esac
}

# would_remove PACKAGE...: the packages that apt would remove or downgrade for these; changes nothing.
would_remove() {
    # "Remv NAME [OLD]" and "Inst NAME [OLD] (NEW ...)".
    LC_ALL=C apt-get -s -o Dpkg::Use-Pty=0 install --no-install-recommends -y --allow-downgrades "$@" 2>/dev/null |
        while read -r verb name old new _; do
            case $verb in
            Remv) echo "$name" ;;
            Inst)
                old=${old#[} old=${old%]} new=${new#(}
                [[ $new ]] && [[ $old != \(* ]] && dpkg --compare-versions "$new" lt "$old" && echo "$name"
                ;;
            esac
        done || true
}

# refuse_removals PACKAGE...: ends with an explanation if apt would remove or downgrade a package for one of these.
refuse_removals() {
    local name lost found=''
    [ -n "$(would_remove "$@")" ] || return 0
    for name in "$@"; do
        lost=$(would_remove "$name" | LC_ALL=C sort -u | tr '\n' ' ')
        [ -n "$lost" ] || continue
        found=1
        log "$name conflicts with what is installed: apt would remove or downgrade ${lost% }"
        log "  install $name from the release that ${lost%% *} came from: apt-cache policy ${lost%% *} names it," \
            "then apt-get install -t RELEASE $name"
    done
    [ -n "$found" ] || log "together, these conflict with what is installed: $*; install them one by one with apt-get"
    die "some packages conflict; nothing was installed or removed. Resolve each as described, then run this again"
}

# can_be_unpacked PACKAGE: whether its programs find their files relative to themselves, so that they run from any folder.
can_be_unpacked() { [[ $1 = qemu-system-* ]]; }

# unpack_package PACKAGE: for one that apt could install only by removing or downgrading a package of the user's (QEMU of
# Debian 12 breaks a newer qemu-utils). Unpacks the package, and what it depends on that is missing, in the cache; its
# programs become commands of $LANDFALL_CACHE/tools/bin, the last folder in PATH. Installs nothing.
unpack_package() {
    local name=$1 version tree libraries temporary wanted=() deb program
    version=$(LC_ALL=C apt-cache policy "$name" | awk '$1 == "Candidate:" { print $2; exit }')
    tree=$LANDFALL_CACHE/tools/${name}_${version//[^A-Za-z0-9.+-]/_}
    cache_dir "$LANDFALL_CACHE/tools" "$LANDFALL_CACHE/tools/bin"
    if [ ! -d "$tree" ]; then
        # "Inst NAME (VERSION ...)", or "Inst NAME [OLD] (VERSION ...)" for an upgrade.
        mapfile -t wanted < <(LC_ALL=C apt-get -s install --no-install-recommends -y "$name" 2>/dev/null |
            sed -nE 's/^Inst ([^ ]+) (\[[^]]*\] )?\(([^ ]+) .*/\1=\3/p')
        log "unpacking $name $version in $LANDFALL_CACHE/tools: installing it would remove or downgrade $(would_remove "$name" | tr '\n' ' ')"
        temporary=$(mktemp -d "$LANDFALL_CACHE/tools/.unpack.XXXXXX")
        mkdir "$temporary/debs" "$temporary/tree"
        (cd "$temporary/debs" && apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 download "${wanted[@]}" >&2) || {
            rm -rf --one-file-system "$temporary"
            die "cannot download ${wanted[*]}; check the network and run apt-get update"
        }
        for deb in "$temporary"/debs/*.deb; do dpkg-deb -x "$deb" "$temporary/tree"; done
        chmod 755 "$temporary/tree"
        mv -T "$temporary/tree" "$tree"
        rm -rf --one-file-system "$temporary"
    fi
    libraries=lib/$(uname -m)-linux-gnu
    for program in "$tree"/usr/bin/"$(function_of "$name")"*; do
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$tree/usr/$libraries:$tree/$libraries" "$program" \
            >"$LANDFALL_CACHE/tools/bin/.new"
        chmod 755 "$LANDFALL_CACHE/tools/bin/.new"
        mv -T "$LANDFALL_CACHE/tools/bin/.new" "$LANDFALL_CACHE/tools/bin/${program##*/}"
    done
}

# install_packages [LIST]: installs what the function LIST (landfall_packages without it) lists and is not there, saying
# what and why. Never removes or downgrades a package: unpacks the one that would (unpack_package), or refuses. Needs root
# only if something is missing.
install_packages() {
    local list=${1:-landfall_packages} missing=() name why
    while read -r name why; do
        installed "$name" && continue
        [ ${#missing[@]} -gt 0 ] || log "installing from Debian:"
        log "$(printf '  %-20s %s' "$name" "$why")"
        missing+=("$name")
    done < <("$list")
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "these packages are missing; run this as root once"
    command -v apt-get >/dev/null || die "this machine has no apt-get; install these programs by hand, or use Debian 12"
    apt_refresh
    local try left=()
    for name in "${missing[@]}"; do
        if can_be_unpacked "$name" && [ -n "$(would_remove "$name")" ]; then unpack_package "$name"; else left+=("$name"); fi
    done
    missing=("${left[@]}")
    [ ${#missing[@]} -gt 0 ] || return 0
    refuse_removals "${missing[@]}"
    for try in 1 2 3; do
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 \
            install --no-install-recommends --no-remove -y "${missing[@]}" >&2 && { stop_services "${missing[@]}"; return 0; }
        log "apt-get install failed (try $try of 3); refreshing the package lists"
        apt_refresh force
        apt-get -qq -o DPkg::Lock::Timeout=300 update || true
        refuse_removals "${missing[@]}"
    done
    die "apt-get could not install: ${missing[*]}"
}

# stop_services PACKAGE...: of packages just installed only the programs are wanted, started by the tests themselves on ports
# of their own; not the services that Debian starts with them.
stop_services() {
    [ -d /run/systemd/system ] || return 0
    local name
    for name in "$@"; do
        case $name in
        # With the cluster that Debian makes: the tests make their own, in directories that they remove.
        postgresql) systemctl disable --now postgresql.service >&2 || true ;;
        pgbouncer) systemctl disable --now pgbouncer.service >&2 || true ;;
        docker-registry) systemctl disable --now docker-registry.service >&2 || true ;;
        openipmi) systemctl disable --now openipmi.service >&2 || true ;;
        nginx-light) systemctl disable --now nginx.service >&2 || true ;;
        esac
    done
}
