# The mini image: the Debian kernel, busybox, and an initramfs that finds the root. Sourced by scripts/os-image.
# shellcheck shell=bash disable=SC2034 # read by scripts/os-image
OS_LABEL=mini
OS_FREE_MIB=48
OS_ESP_MIB=16
OS_LEVEL=9

# Every disk and network card a test machine may have, and what finds and mounts the root.
MINI_MODULES=(virtio_pci virtio_blk virtio_scsi virtio_net virtio_rng nvme ahci ata_piix sd_mod ext4 e1000 e1000e vmxnet3
    8139cp mptsas megaraid_sas crc32c_intel crc32c_generic)

os_build() {
    local work=$1 tree=$2 root=$1/root applet here=$LANDFALL_ROOT/scripts/os/mini modules=() name
    mkdir -p "$root"/{bin,boot/grub,dev,etc,mnt,opt,proc,root,run,sys,tmp,usr/local/lib,usr/bin,var/lib,var/log}
    chmod 1777 "$root/tmp"
    chmod 700 "$root/root"
    ln -s bin "$root/sbin"
    ln -s /run "$root/var/run"
    install -m 755 /bin/busybox "$root/bin/busybox"
    for applet in $(/bin/busybox --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    cp -r --no-preserve=mode,ownership "$here/files/." "$root/"
    chmod 755 "$root"/etc/init.d/* "$root"/etc/udhcpc/*

    printf "%s\n" "${MINI_MODULES[@]}" >"$work/modules"
    for name in "${MINI_MODULES[@]}"; do modules+=(--module "$name"); done
    landfall_image initramfs --kernel-tree "$tree" --profile none --plain-modules "${modules[@]}" --init "$here/initramfs-init" \
        --file /bin/busybox:/bin/busybox:0755 --file "$work/modules:/etc/modules:0644" \
        --level 12 --kernel-out "$root/boot/vmlinuz" -o "$root/boot/initrd.img" >&2
    chmod 644 "$root/boot/vmlinuz" "$root/boot/initrd.img"
}
