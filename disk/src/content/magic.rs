//! What is published in place of a disk image, and the bytes by which each is known.
//!
//! A row names one format, with its article. Rows that need more than bytes at one place have a function.

use super::looks;
use crate::signature;

/// What a format is good for; decides whether it can be written at all, and what a person is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mistake {
    /// Holds a disk for a virtual machine or a forensic tool, in another format than the disk's own bytes.
    VirtualDisk,
    /// A VMDK that is not streamOptimized, or one inside another format.
    Vmdk,
    /// A virtual machine: a description of it, and its disks.
    Appliance,
    /// Compressed once more, or in a way that is not decoded.
    Compressed,
    /// Holds files, among them perhaps the image.
    Archive,
    /// A program, a kernel or a part of a firmware.
    Program,
    /// What a server gives, or a tool prints, in place of the image.
    Message,
    /// A small file that belongs to an image.
    Beside,
    /// A picture, a book, a database.
    Data,
    /// A file system or another volume, of which a disk may hold one without a partition table.
    Volume,
}

impl Mistake {
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 10] = [
        Self::VirtualDisk,
        Self::Vmdk,
        Self::Appliance,
        Self::Compressed,
        Self::Archive,
        Self::Program,
        Self::Message,
        Self::Beside,
        Self::Data,
        Self::Volume,
    ];

    /// What to do instead.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Self::VirtualDisk => "convert it (qemu-img convert -O raw FILE disk.img), compress it and publish that",
            Self::Vmdk => {
                "convert it (qemu-img convert -O vmdk -o subformat=streamOptimized FILE disk.vmdk, or qemu-img convert -O raw \
                    and compress that with zstd), and publish the result as it is"
            }
            Self::Appliance => "unpack it (tar -xf FILE), and publish the .vmdk of the system's disk that is in it",
            Self::Compressed => "compress the disk image once, with zstd, xz, gzip, bzip2 or lz4",
            Self::Archive => "unpack it, and publish the disk image that is in it",
            Self::Program => "publish a whole disk image: a kernel or a program alone does not start from a disk",
            Self::Message => {
                "open the URL in a browser: the server gives a page or a message; correct the URL or the credentials"
            }
            Self::Beside => "state the URL of the image itself; this file only describes it",
            Self::Data => "state the URL of a disk image",
            Self::Volume => {
                "build the image with a partition table; if it is meant to have none, state that with table: none \
                    (--table none)"
            }
        }
    }
}

/// How a format is known.
#[derive(Clone, Copy)]
enum Sign {
    /// These bytes at this offset.
    Magic(usize, &'static [u8]),
    /// Whatever the function says of the first bytes.
    Looks(fn(&[u8]) -> bool),
}

/// A row of the table.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) kind: Mistake,
    sign: Sign,
}

impl Known {
    fn is(&self, head: &[u8]) -> bool {
        match self.sign {
            Sign::Magic(at, magic) => head.get(at..).is_some_and(|rest| rest.starts_with(magic)),
            Sign::Looks(look) => look(head),
        }
    }

    /// The bytes and their place, where these are all.
    #[cfg(test)]
    pub(super) const fn magic(&self) -> Option<(usize, &'static [u8])> {
        match self.sign {
            Sign::Magic(at, magic) => Some((at, magic)),
            Sign::Looks(_) => None,
        }
    }
}

const fn at(kind: Mistake, name: &'static str, offset: usize, magic: &'static [u8]) -> Known {
    Known { name, kind, sign: Sign::Magic(offset, magic) }
}

const fn looks_like(kind: Mistake, name: &'static str, look: fn(&[u8]) -> bool) -> Known {
    Known { name, kind, sign: Sign::Looks(look) }
}

const ESX: &str = "a VMDK of ESX";
const ZIP: &str = "a ZIP archive";
const CPIO: &str = "a cpio archive";
const MACH: &str = "a Mach-O program";

/// Exact bytes first; what only looks like something comes last. Where no specification is named, the bytes are those of
/// file(1), magic/Magdir.
pub(super) const KNOWN: &[Known] = {
    use Mistake::{Appliance, Archive, Beside, Compressed, Data, Message, Program, VirtualDisk, Vmdk, Volume};
    &[
        // VirtualBox, VDICore.h: the signature behind 64 bytes of text.
        at(VirtualDisk, "a VDI of VirtualBox", 64, &[0x7f, 0x10, 0xda, 0xbe]),
        // QEMU, docs/interop/qed_spec.rst.
        at(VirtualDisk, "a QED of QEMU", 0, b"QED\0"),
        // VMware Virtual Disk Format 5.0: what is decoded, but not inside another format; ESX sparse; and the text that leads to
        // them and to flat files.
        at(Vmdk, "a VMDK inside another format", 0, b"KDMV"),
        at(Vmdk, ESX, 0, b"COWD"),
        at(Vmdk, ESX, 0, &[0xbe, 0xba, 0xfe, 0xca, 0, 0, 0, 0]),
        at(Vmdk, "the descriptor of a VMDK whose disk is in other files", 0, b"# Disk DescriptorFile"),
        // Its first file is the description (DMTF DSP0243, section 5.3).
        looks_like(Appliance, "an OVA (a virtual machine in a tar archive)", looks::ova),
        // MS-VHDX, section 2.2.1. VHD Image Format Specification 1.0: the copy of the footer that a dynamic disk begins with.
        at(VirtualDisk, "a VHDX of Hyper-V", 0, b"vhdxfile"),
        at(VirtualDisk, "a VHD of Hyper-V", 0, b"conectix"),
        // QEMU, docs/interop/parallels.rst: the older and the newer.
        at(VirtualDisk, "a disk of Parallels", 0, b"WithoutFreeSpace"),
        at(VirtualDisk, "a disk of Parallels", 0, b"WithouFreSpacExt"),
        at(VirtualDisk, "a disk of Bochs", 0, b"Bochs Virtual HD Image"),
        at(VirtualDisk, "a cloop image", 0, b"#!/bin/sh\n#V2.0 Format\n"),
        // A DMG has its magic at its end; these are what hdiutil writes at the start, compressed and encrypted.
        at(VirtualDisk, "a DMG of macOS", 0, b"x\x01s\rbb`"),
        at(VirtualDisk, "a DMG of macOS", 0, b"encrcdsa"),
        at(VirtualDisk, "a DMG of macOS", 0, b"koly"),
        at(VirtualDisk, "an EnCase image", 0, b"EVF\x09\x0d\x0a\xff\0"),
        at(VirtualDisk, "a Proxmox backup (vma)", 0, b"VMA\0"),
        at(VirtualDisk, "a partclone image", 0, b"partclone-image"),
        // AOSP, libsparse/sparse_format.h.
        at(VirtualDisk, "an Android sparse image", 0, &[0x3a, 0xff, 0x26, 0xed]),
        at(VirtualDisk, "a qcow2 of QEMU inside another format", 0, b"QFI\xfb"),
        // What is decoded once is not decoded twice.
        at(Compressed, "gzip data", 0, &[0x1f, 0x8b]),
        at(Compressed, "xz data", 0, &[0xfd, b'7', b'z', b'X', b'Z', 0]),
        at(Compressed, "zstd data", 0, &[0x28, 0xb5, 0x2f, 0xfd]),
        looks_like(Compressed, "zstd data", looks::skippable_frame),
        looks_like(Compressed, "bzip2 data", looks::bzip2),
        at(Compressed, "LZ4 data", 0, &[0x04, 0x22, 0x4d, 0x18]),
        at(Compressed, "LZ4 data in the legacy format (lz4 -l)", 0, &[0x02, 0x21, 0x4c, 0x18]),
        at(Compressed, "lzip data", 0, b"LZIP"),
        at(Compressed, "lzop data", 0, &[0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, 0x0a]),
        at(Compressed, "lrzip data", 0, b"LRZI"),
        at(Compressed, "data of compress (.Z)", 0, &[0x1f, 0x9d]),
        at(Compressed, "Snappy data", 0, b"\xff\x06\0\0sNaPpY"),
        looks_like(Compressed, "LZMA data (.lzma)", looks::lzma),
        // 7-Zip, 7zFormat.txt. PKWARE APPNOTE 4.3.6: entries, an empty archive, a split one.
        at(Archive, "a 7z archive", 0, &[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c]),
        at(Archive, ZIP, 0, b"PK\x03\x04"),
        at(Archive, ZIP, 0, b"PK\x05\x06"),
        at(Archive, ZIP, 0, b"PK\x07\x08"),
        at(Archive, "a RAR archive", 0, b"Rar!\x1a\x07"),
        // POSIX.1, ustar and pax; older ones have only a checksum.
        at(Archive, "a tar archive", 257, b"ustar"),
        looks_like(Archive, "a tar archive", looks::old_tar),
        at(Archive, CPIO, 0, b"070701"),
        at(Archive, CPIO, 0, b"070702"),
        at(Archive, CPIO, 0, b"070707"),
        at(Archive, CPIO, 0, &[0xc7, 0x71]),
        at(Archive, "a WIM of Windows", 0, b"MSWIM\0\0\0"),
        at(Archive, "a cabinet of Windows", 0, b"MSCF\0\0\0\0"),
        at(Archive, "an RPM package", 0, &[0xed, 0xab, 0xee, 0xdb]),
        at(Archive, "a Debian package", 0, b"!<arch>\ndebian"),
        at(Archive, "an ar archive", 0, b"!<arch>\n"),
        at(Archive, "a xar archive", 0, b"xar!"),
        at(Archive, "an LHA archive", 2, b"-lh5-"),
        // PE: a kernel with its initramfs has a section .linux (UAPI group, Unified Kernel Image).
        looks_like(Program, "a unified kernel image (UKI)", looks::uki),
        looks_like(Program, "a Linux kernel", looks::linux_kernel),
        looks_like(Program, "a program for UEFI or Windows", looks::pe),
        at(Program, "an ELF program", 0, &[0x7f, b'E', b'L', b'F']),
        at(Program, MACH, 0, &[0xcf, 0xfa, 0xed, 0xfe]),
        at(Program, MACH, 0, &[0xce, 0xfa, 0xed, 0xfe]),
        at(Program, "a Mach-O program or a Java class", 0, &[0xca, 0xfe, 0xba, 0xbe]),
        at(Program, "a WebAssembly module", 0, b"\0asm"),
        at(Program, "a U-Boot image", 0, &[0x27, 0x05, 0x19, 0x56]),
        at(Program, "a device tree or FIT image", 0, &[0xd0, 0x0d, 0xfe, 0xed]),
        at(Program, "an Android boot image", 0, b"ANDROID!"),
        at(Program, "a script", 0, b"#!/"),
        at(Program, "a script", 0, b"#!ipxe"),
        // Small files beside an image.
        at(Beside, "a Git LFS pointer", 0, b"version https://git-lfs"),
        looks_like(Beside, "a torrent", looks::torrent),
        at(Beside, "a zsync file", 0, b"zsync: "),
        at(Beside, "a jigdo template", 0, b"JigsawDownload"),
        at(Beside, "a minisign signature", 0, b"untrusted comment:"),
        at(Beside, "a PEM file", 0, b"-----BEGIN "),
        at(Data, "a PDF", 0, b"%PDF-"),
        at(Data, "a PNG picture", 0, &[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a]),
        at(Data, "a JPEG picture", 0, &[0xff, 0xd8, 0xff]),
        at(Data, "a GIF picture", 0, b"GIF8"),
        at(Data, "an SQLite database", 0, b"SQLite format 3\0"),
        at(Data, "an Office document or Windows installer", 0, &[0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]),
        // Volumes that the table of signatures does not hold, because nothing is cleared for them.
        at(Volume, "a squashfs", 0, b"hsqs"),
        at(Volume, "a squashfs", 0, b"sqsh"),
        // Linux, fs/erofs/erofs_fs.h; include/uapi/linux/cramfs_fs.h in both byte orders; fs/romfs.
        at(Volume, "an EROFS", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
        at(Volume, "a cramfs", 0, &[0x45, 0x3d, 0xcd, 0x28]),
        at(Volume, "a cramfs", 0, &[0x28, 0xcd, 0x3d, 0x45]),
        at(Volume, "a romfs", 0, b"-rom1fs-"),
        at(Volume, "a UDF", 0x8001, b"BEA01"),
        at(Volume, "an APFS container", 32, b"NXSB"),
        at(Volume, "an HFS+ file system", 1024, b"H+\0\x04"),
        at(Volume, "an HFS+ file system", 1024, b"HX\0\x05"),
        at(Volume, "a JFS", 0x8000, b"JFS1"),
        at(Volume, "a ReiserFS", 0x1_0034, b"ReIsEr"),
        at(Volume, "a UBI image", 0, b"UBI#"),
        looks_like(Volume, "a FAT file system", looks::fat),
        // Text, from the special to the general.
        looks_like(Message, "a web page", looks::html),
        looks_like(Message, "XML", looks::xml),
        looks_like(Message, "JSON", looks::json),
        looks_like(Message, "text", looks::text),
    ]
};

/// What content that starts like this is, if it is known.
pub(crate) fn recognise(head: &[u8]) -> Option<(&'static str, Mistake)> {
    let (exact, text): (Vec<&Known>, Vec<&Known>) = KNOWN.iter().partition(|known| known.kind != Mistake::Message);
    let found = |rows: Vec<&Known>| rows.into_iter().find(|known| known.is(head)).map(|known| (known.name, known.kind));
    // What is cleared from old disks is known there, with more places than a file's start needs.
    let volume = || signature::at_start(head).map(|name| (name, Mistake::Volume));
    found(exact).or_else(volume).or_else(|| found(text))
}
