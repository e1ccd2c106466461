#!/usr/bin/env python3
"""Makes the seeds of corpus/ anew. Seeds are committed; this says where they come from, and is run by hand when the layout of a
target's input changes. What `found-…` names was found by fuzzing, and is not made here."""

import io
import pathlib
import struct
import subprocess
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def seed(target, name, *parts):
    path = HERE / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0".join(p.encode() if isinstance(p, str) else p for p in parts))


def dhcp(kind, *options):
    """An answer to the client of address 02:00:00:00:00:01 and exchange 7."""
    fixed = struct.pack("!4BIHH4s4s4s4s16s64s128s", 2, 1, 6, 0, 7, 0, 0, bytes(4), bytes([10, 0, 0, 9]),
                        bytes([10, 0, 0, 1]), bytes(4), bytes([2, 0, 0, 0, 0, 1]), b"", b"")
    body = bytes([53, 1, kind]) + b"".join(bytes([code, len(value)]) + value for code, value in options)
    return fixed + bytes([99, 130, 83, 99]) + body + b"\xff"


SERVER = (54, bytes([10, 0, 0, 1]))
MASK = (1, bytes([255, 255, 255, 0]))
seed("dhcp_answer", "offer", dhcp(2, SERVER, MASK, (3, bytes([10, 0, 0, 1])), (51, struct.pack("!I", 3600))))
seed("dhcp_answer", "ack", dhcp(5, SERVER, MASK, (6, bytes([10, 0, 0, 53, 10, 0, 0, 54])), (26, struct.pack("!H", 9000)),
                                (51, struct.pack("!I", 120)), (58, struct.pack("!I", 60)), (59, struct.pack("!I", 100))))
seed("dhcp_answer", "routes", dhcp(5, SERVER, (121, bytes([24, 10, 1, 2, 10, 0, 0, 1, 0, 10, 0, 0, 1]))))
seed("dhcp_answer", "nak", dhcp(6, SERVER, (56, b"wrong network")))

DEBIAN = """set default=0
if [ "$linux_gfx_mode" != text ]; then set gfxpayload=keep; fi
menuentry 'Debian GNU/Linux' --class debian {
\tsearch --no-floppy --fs-uuid --set=root 1-2
\techo\t'Loading Linux 6.1.0-35-amd64 ...'
\tlinux\t/boot/vmlinuz-6.1.0-35-amd64 root=UUID=1-2 ro  quiet $vt_handoff
\tinitrd\t/boot/initrd.img-6.1.0-35-amd64
}
"""
seed("grub_cfg", "debian", "", DEBIAN)
seed("grub_cfg", "environment", "# GRUB Environment Block\nkernelopts=root=/dev/mapper/a\\\\b ro\nsaved_entry=0\n####",
     "probe --set=uuid --fs-uuid $root\nset console='console=ttyS0'\n"
     "linuxefi /vmlinuz root=UUID=${uuid} \\\n \"$kernelopts\" $console\n")
# Each line doubles what the one before it made.
seed("grub_cfg", "doubling", "", "set a=xxxxxxxx\n" + "set a=$a$a\n" * 40 + "linux /k $a $a\n")
seed("grub_cfg", "many-lines", "", "linux /k a\n" * 400)

ENTRY = "title Linux\nversion {0}\nlinux /vmlinuz-{0}\ninitrd /initramfs-{0}.img $tuned_initrd\noptions {1}\n"
seed("loader_entries", "fedora", "kernelopts=root=UUID=1 ro\n", ENTRY.format("5.9", "root=UUID=1 ro"),
     ENTRY.format("5.14", "$kernelopts quiet $tuned_params"), ENTRY.format("0-rescue", "root=UUID=1"))
seed("loader_entries", "versions", "", "6.1.0-rc1", "6.1.0~a", "6.1.0-35-amd64")
seed("loader_entries", "doubling", "a=" + "x" * 1000, "linux /k\noptions " + "$a" * 1000)

seed("kernel_cmdline", "agent", "landfall.coordinator=https://10.77.0.1:7443/ landfall.ca=sha256:" + "0a" * 32 +
     " landfall.token=t0ken BOOTIF=01-52-54-00-00-00-01 console=ttyS0 panic=30")
seed("kernel_cmdline", "secrets", 'root=UUID=1 "rd.luks.key=a b" netroot=iscsi:u:p@h keymap=de passwd=x quiet')
seed("kernel_cmdline", "quotes", 'a="b c" "landfall.x=1')

seed("module_index", "chain",
     "kernel/a.ko: kernel/b.ko kernel/c.ko\nkernel/b.ko: kernel/c.ko\nkernel/c.ko:\nkernel/crc-32.ko.xz:\n",
     "alias pci:v00008086d*sv*sd*bc02sc00i* a\nalias crypto-crc32 crc_32\nalias virtio:d0000000[1-4]v* b\n",
     "softdep a pre: crypto-crc32 post: b\nsoftdep b post: a\n", "pci:v00008086d00001234sv0sd0bc02sc00i00")

seed("module_index", "cut", "kernel/a.ko:\n:\nkernel/", "alias x\nalias usb:* a\nalias usb:v1[0-9]?p* \n", "softdep\nsoftdep a b\n",
     "usb:v12p3")

seed("fstab", "debian", "# <file system> <mount point> <type> <options>\nUUID=ab-1 / ext4 errors=remount-ro 0 1\n"
     "UUID=CD-2 /boot/efi vfat umask=0077 0 1\nLABEL=my\\040disk /srv//data/. xfs nofail\nUUID=3 none swap sw 0 0\n"
     "/dev/disk/by-label/a\\x20b\t/a/../b btrfs subvol=/@b\n/dev/vg/home /home\nnas:/x /mnt nfs noauto,x-systemd.automount\n")
seed("fstab", "hidden", "UUID=1 /var ext4\nPARTLABEL=\"var\" /var/ xfs\npartuuid=2 //var ext4\n")
seed("fstab", "escapes", "LABEL=\\134\\040\\9\\ /\\056\\056/x ext4\nUUID=\"\" / ext4\n=x / ext4\n")
seed("os_release", "debian", 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n')
seed("os_release", "plain", "PRETTY_NAME= 'x\n")

seed("uevent", "device", "add@/devices/pci0000:00/0000:00:03.0", "ACTION=add", "MODALIAS=pci:v00001AF4d00001000", "")
seed("uevent", "no-driver", "add@/devices/virtual/tty/tty7", "ACTION=add", "SUBSYSTEM=tty", "")
seed("uevent", "removed", "remove@/devices/x", "MODALIAS=usb:v1", "")


def archive(name, first, format, *entries):
    """A tar stream of (name, type, link or content, records) behind the target's first byte."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as tar:
        for entry, kind, content, records in entries:
            info = tarfile.TarInfo(entry)
            info.type = kind
            info.pax_headers = records
            data = b""
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = content
            else:
                data = content.encode()
                info.size = len(data)
            info.devmajor, info.devminor = 1, 3
            tar.addfile(info, io.BytesIO(data))
    seed("tar", name, bytes([first]) + stream.getvalue()[:8192])


FILE, DIRECTORY, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
archive("gnu", 0, tarfile.GNU_FORMAT, ("d", DIRECTORY, "", {}), ("d/f", FILE, "hello", {}), ("l", LINK, "d", {}), ("l/g", FILE, "x", {}),
        ("h", HARD, "d/f", {}), ("c", tarfile.CHRTYPE, "", {}), ("p", tarfile.FIFOTYPE, "", {}), ("n" * 120, FILE, "", {}))
archive("pax", 0, tarfile.PAX_FORMAT, ("f", FILE, "12345678", {"mtime": "-1.5", "SCHILY.xattr.user.a": "b", "uid": "7",
        "LIBARCHIVE.xattr.user.c": "AQI", "SCHILY.acl.access": "user::rw-,user:5:r--,group::r--,mask::r--,other::---"}))
archive("holes", 0, tarfile.PAX_FORMAT, ("f", FILE, "12345678", {"GNU.sparse.map": "0,4,100,4", "GNU.sparse.size": "200",
        "GNU.sparse.name": "sparse"}))
archive("layer", 1, tarfile.USTAR_FORMAT, ("a/b", FILE, "1", {}), ("a/.wh.c", FILE, "", {}), ("a/.wh..wh..opq", FILE, "", {}),
        (".wh.a", FILE, "", {}), ("a", FILE, "2", {}), ("e", LINK, "../outside", {}), ("e/f", FILE, "3", {}), (".wh.e", FILE, "", {}))
archive("outside", 0, tarfile.USTAR_FORMAT, ("e", LINK, "../outside", {}), ("e/file", FILE, "evil", {}), ("h", HARD, "e/file", {}),
        ("h", FILE, "evil", {}), ("../outside/x", FILE, "evil", {}))
for format, name in (("--format=gnu", "old-holes"), ("--format=pax", "new-holes")):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/sparse", "wb") as sparse:
            for n in range(30):
                sparse.seek(n * 200000)
                sparse.write(b"x")
        output = subprocess.run(["tar", "-S", format, "--mtime=@0", "--owner=0", "--group=0", "-b", "1", "-c", "sparse"],
                                cwd=folder, check=True, stdout=subprocess.PIPE).stdout
        # The map and a piece or two; what is cut off is another case.
        seed("tar", name, b"\0" + output[:6144])
