# The Debian image: mmdebstrap, nothing that a server would not have. Sourced by scripts/os-image.
# shellcheck shell=bash disable=SC2034 # read by scripts/os-image
OS_LABEL=debian
OS_FREE_MIB=600
OS_ESP_MIB=32
OS_LEVEL=9
OS_SUITE=bookworm

# netplan.io: cloud-init's first choice on Debian, and the only renderer of it that knows bonds and VLANs whole.
DEBIAN_PACKAGES=(linux-image-amd64 initramfs-tools zstd systemd-sysv systemd-resolved udev dbus kmod cloud-init
    cloud-guest-utils netplan.io openssh-server sudo ca-certificates iproute2 iputils-ping procps less nano
    libpam-systemd e2fsprogs fdisk gdisk)
# The tools of the root's own file system come with it.
case $root_fs in
xfs) DEBIAN_PACKAGES+=(xfsprogs) ;;
btrfs) DEBIAN_PACKAGES+=(btrfs-progs) ;;
esac

# Started at boot or by timers, of no use on a fresh server, and slow without KVM.
DEBIAN_DISABLED=(apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service dpkg-db-backup.timer
    man-db.timer)

os_build() {
    local work=$1 root=$1/root here=$LANDFALL_ROOT/scripts/os/debian include mirrors=()
    include=$(IFS=, && echo "${DEBIAN_PACKAGES[*]}")
    mapfile -t mirrors < <(debian_sources)
    log "building Debian $OS_SUITE with mmdebstrap"
    # MODULES=most: the machine that boots is not the one that builds.
    mmdebstrap --quiet --mode=root --variant=minbase --include="$include" --format=directory \
        --aptopt='Acquire::Retries "3"' --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*/LC_MESSAGES/*.mo' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/kernel"' \
        --essential-hook='printf "MODULES=most\nCOMPRESS=zstd\n" > "$1/etc/initramfs-tools/conf.d/landfall"' \
        --essential-hook='printf "do_symlinks = yes\ndo_bootloader = no\nlink_in_boot = no\n" > "$1/etc/kernel-img.conf"' \
        "$OS_SUITE" "$root" "${mirrors[@]}" >&2
    debian_configure "$root" "$here"
}

# The sources of this machine's apt serve as mirrors, of the build and of those who run the image.
debian_sources() {
    local uri
    uri=$(LC_ALL=C apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite="$OS_SUITE" '$2 == suite && $1 ~ /debian\/?$/ { print $1; exit }' || true)
    [ -n "$uri" ] || die "apt has no source for Debian $OS_SUITE on this machine; add one and run apt-get update"
    printf 'deb %s %s main\n' "$uri" "$OS_SUITE" "$uri" "$OS_SUITE-updates"
    printf 'deb %s %s main\n' "${uri%/debian*}/debian-security" "$OS_SUITE-security"
}

# What os-disk makes of root_fs and var_mib, both of scripts/os-image.
debian_fstab() {
    case $root_fs in
    ext4) printf 'LABEL=%s / ext4 defaults,errors=remount-ro 0 1\n' "$OS_LABEL" ;;
    xfs) printf 'LABEL=%s / xfs defaults 0 0\n' "$OS_LABEL" ;;
    btrfs)
        printf 'LABEL=%s / btrfs defaults,subvol=@rootfs 0 0\n' "$OS_LABEL"
        printf 'LABEL=%s /home btrfs defaults,subvol=@home 0 0\n' "$OS_LABEL"
        ;;
    esac
    [ "$var_mib" = 0 ] || printf 'LABEL=var /var ext4 defaults 0 2\n'
}

debian_configure() {
    local root=$1 here=$2 unit
    cp -r --no-preserve=mode,ownership "$here/files/." "$root/"
    debian_fstab >"$root/etc/fstab"
    echo debian >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
    debian_sources >"$root/etc/apt/sources.list"
    rm -f "$root"/etc/apt/sources.list.d/0*

    chroot "$root" systemctl --quiet enable systemd-networkd.service systemd-resolved.service
    for unit in "${DEBIAN_DISABLED[@]}"; do chroot "$root" systemctl --quiet mask "$unit"; done
    ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"

    # What makes one machine differ from another is made on that machine.
    rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed"
    : >"$root/etc/machine-id"
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb \
        "$root"/var/log/*.log "$root"/var/log/apt/* "$root"/var/cache/debconf/*-old "$root"/tmp/* "$root"/var/tmp/*
    [ -e "$root/vmlinuz" ] && [ -e "$root/initrd.img" ] || die "the Debian kernel left no /vmlinuz and /initrd.img"
}
