//! One disk image as each format stores it.

use std::{fmt::Write as _, io::Write, process::Command};

use landfall_api::IndexSpec;
use landfall_disk::Proof;
use liblzma::stream::{Check, MtStreamBuilder};
use liblzma::write::XzEncoder;
use sha2::{Digest as _, Sha256, Sha512};

use super::{digest, packed};

/// What a server is to give.
pub(crate) struct Stored {
    pub(crate) name: &'static str,
    pub(crate) image: Vec<u8>,
    /// A manifest or a bmap.
    pub(crate) index: Option<Vec<u8>>,
}

/// What is to prove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sha256,
    Sha512,
    Raw,
    Index,
}

impl Stored {
    /// The kinds of proof it can have.
    pub(crate) fn kinds(&self) -> &'static [Kind] {
        match self.index {
            Some(_) => &[Kind::Index],
            // A qcow2 file's clusters may be anywhere, and the digest of the raw bytes needs them in order.
            None if self.name == "qcow2" => &[Kind::Sha256, Kind::Sha512],
            None => &[Kind::Sha256, Kind::Sha512, Kind::Raw],
        }
    }

    pub(crate) fn proof(&self, kind: Kind, raw: &[u8], index_url: &str) -> Proof {
        match (kind, &self.index) {
            (Kind::Index, Some(index)) => Proof::Index(IndexSpec { url: index_url.into(), digest: digest(index) }),
            (Kind::Sha512, _) => Proof::Stored(landfall_api::Digest::from_sha512(Sha512::digest(&self.image).into())),
            (Kind::Raw, _) => Proof::Raw(digest(raw)),
            (Kind::Sha256 | Kind::Index, _) => Proof::Stored(digest(&self.image)),
        }
    }
}

/// Every format; qcow2, and the VMDK that `qemu-img` makes, only if that is installed, and a message if it is not.
pub(crate) fn all(raw: &[u8]) -> Vec<Stored> {
    let plain = |name, image| Stored { name, image, index: None };
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(raw).unwrap();
    let blocks = MtStreamBuilder::new().check(Check::Crc64).threads(1).preset(0).block_size(1 << 20).encoder().unwrap();
    let mut xz = XzEncoder::new_stream(Vec::new(), blocks);
    xz.write_all(raw).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(raw).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(raw).unwrap();
    let frames = raw.chunks(700_000).flat_map(|part| zstd::encode_all(part, 1).unwrap()).collect();
    let (chunks, index) = packed(raw, 256 << 10);
    let mut all = vec![
        plain("raw", raw.to_vec()),
        plain("gzip", gzip.finish().unwrap()),
        plain("xz", xz.finish().unwrap()),
        plain("zstd", zstd::encode_all(raw, 1).unwrap()),
        plain("zstd-frames", frames),
        plain("bzip2", bzip2.finish().unwrap()),
        plain("lz4", lz4.finish().unwrap()),
        Stored { name: "packed", image: chunks, index: Some(index.to_json().unwrap().into_bytes()) },
        // As VMware writes it.
        plain("vmdk-vmware", super::vmdk::of(raw, 128).bytes),
        Stored { name: "bmap", image: raw.to_vec(), index: Some(bmap(raw).into_bytes()) },
    ];
    match (qcow2(raw), vmdk(raw)) {
        (Some(qcow2), Some(vmdk)) => all.extend([plain("qcow2", qcow2), plain("vmdk", vmdk)]),
        _ => eprintln!("SKIPPED: qcow2 and vmdk: no qemu-img"),
    }
    all
}

/// As `qemu-img` stores it; `None`: there is none.
pub(crate) fn qcow2(raw: &[u8]) -> Option<Vec<u8>> {
    qemu_img(raw, &["qcow2", "-c"])
}

/// Likewise.
pub(crate) fn vmdk(raw: &[u8]) -> Option<Vec<u8>> {
    qemu_img(raw, &["vmdk", "-o", "subformat=streamOptimized"])
}

fn qemu_img(raw: &[u8], format: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("raw"), folder.path().join("made"));
    std::fs::write(&from, raw).unwrap();
    let status = Command::new("qemu-img").args(["convert", "-f", "raw", "-O"]).args(format).args([&from, &to]).status();
    assert!(status.ok()?.success(), "qemu-img convert failed");
    Some(std::fs::read(to).unwrap())
}

/// A bmap of blocks of 4096, version 2.0, of the blocks that are not zero.
pub(crate) fn bmap(raw: &[u8]) -> String {
    let blocks: Vec<_> = raw.chunks(4096).collect();
    let (mut ranges, mut mapped, mut at) = (String::new(), 0, 0);
    while at < blocks.len() {
        let length = blocks[at..].iter().take_while(|block| block.iter().any(|byte| *byte != 0)).count();
        if length == 0 {
            at += 1;
            continue;
        }
        let sum = hex::encode(Sha256::digest(blocks[at..at + length].concat()));
        writeln!(ranges, "<Range chksum=\"{sum}\"> {at}-{} </Range>", at + length - 1).unwrap();
        (at, mapped) = (at + length, mapped + length);
    }
    let with = |sum: &str| {
        format!(
            "<?xml version=\"1.0\" ?>\n<bmap version=\"2.0\"><ImageSize> {} </ImageSize><BlockSize> 4096 </BlockSize>\
             <BlocksCount> {} </BlocksCount><MappedBlocksCount> {mapped} </MappedBlocksCount>\
             <ChecksumType> sha256 </ChecksumType><BmapFileChecksum> {sum} </BmapFileChecksum>\n\
             <BlockMap>\n{ranges}</BlockMap></bmap>\n",
            raw.len(),
            blocks.len(),
        )
    };
    with(&hex::encode(Sha256::digest(with(&"0".repeat(64)))))
}
