#!/bin/bash
# dracut's module for Landfall's agent: `dracut --add landfall` makes an initramfs that enrols its machine (docs/image-builders.md).

# Only where a person asks for it.
check() {
    require_binaries landfall-agent || return 1
    return 255
}

depends() {
    echo systemd
}

# The machine that boots is not the one on which dracut runs. A module that this kernel lacks or has built in is passed over.
installkernel() {
    hostonly='' instmods =drivers/net =drivers/block =drivers/scsi =drivers/nvme =drivers/ata =drivers/virtio =drivers/message \
        =drivers/nvdimm =drivers/md =fs vfat efivarfs nls_ascii nls_cp437 af_packet 8021q loop squashfs overlay \
        crc32c_generic crc32c_intel crct10dif_generic crct10dif_pclmul
}

install() {
    inst_binary "$(find_binary landfall-agent)" /usr/bin/landfall-agent
    inst_multiple systemctl
    inst_simple "$moddir/landfall-agent.service" "$systemdsystemunitdir/landfall-agent.service"
    $SYSTEMCTL -q --root "$initdir" add-wants initrd.target landfall-agent.service
}
