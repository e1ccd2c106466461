//! A unified kernel image (UKI): one EFI program that is kernel, initramfs and command line (UAPI.5). Firmware starts it from HTTP,
//! a USB stick or a virtual CD without any other boot loader.
//!
//! It is the stub of systemd with more sections. What the stub does with them: systemd-stub(7). Own code, since object's writer moves
//! sections that stand closer than the stub's own alignment, as they do in Debian 12's.

use crate::arch::Arch;
use crate::pe::{
    CERTIFICATES, CHECKSUM, DIRECTORIES, FILE_ALIGNMENT, Headers, SECTION_HEADER, SECTIONS, SIZE_OF_DATA,
    SIZE_OF_HEADERS, SIZE_OF_IMAGE, SYMBOLS, word,
};

/// Bytes that the command line takes, filled up with blanks, so that a coordinator can put each machine's own in its place. The kernel
/// takes 2047 (`COMMAND_LINE_SIZE` of x86-64).
pub const COMMAND_LINE: usize = 2047;
/// A page: where the stub finds the kernel in memory, the kernel can be started.
const PAGE: u32 = 4096;
/// A section's flags: initialised data, readable.
const READABLE_DATA: u32 = 0x4000_0040;

/// What a UKI is made of.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// systemd's stub, of 250 or newer: [`Arch::stub`].
    pub stub: &'a [u8],
    /// The kernel.
    pub kernel: &'a [u8],
    /// The boot image.
    pub initramfs: &'a [u8],
    /// The kernel's command line, at most [`COMMAND_LINE`] bytes.
    pub command_line: &'a str,
    /// What boot menus show, in the format of os-release(5).
    pub os_release: &'a str,
}

/// Why there is no UKI.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum UkiError {
    /// The stub is no EFI program of 64 bits.
    #[error(
        "the stub is not valid: {0}; it is linuxx64.efi.stub or linuxaa64.efi.stub of systemd (Debian's package systemd-boot-efi)"
    )]
    Stub(&'static str),
    /// The stub could not start it.
    #[error("the kernel is no EFI program for x86-64 or arm64{}", if *compressed { ", but a gzip file; unpack it" } else { "" })]
    Kernel { compressed: bool },
    /// Nor one for another processor.
    #[error("the kernel is for {kernel}, and the stub for {stub}; give {} as the stub", kernel.stub())]
    Processor { kernel: Arch, stub: Arch },
    /// A UKI that is made into another would start its own kernel.
    #[error("the stub has a section {0} already: it is a UKI; give the stub that it was made of")]
    IsUki(String),
    /// The command line is too long, or has several lines.
    #[error("the command line has {0} bytes or a line break; at most {COMMAND_LINE} bytes in one line are taken")]
    CommandLine(usize),
    /// Beyond 32 bits.
    #[error("the kernel and the initramfs are too large: a UKI has less than 4 GiB")]
    TooLarge,
}

/// The processor that a kernel is for.
///
/// # Errors
/// [`UkiError::Kernel`]: no stub starts it.
pub fn processor_of(kernel: &[u8]) -> Result<Arch, UkiError> {
    // RFC 1952, 2.3.1.
    let compressed = kernel.starts_with(&[0x1f, 0x8b]);
    Arch::of_program(kernel).ok_or(UkiError::Kernel { compressed })
}

/// Makes the UKI.
///
/// # Errors
/// [`UkiError`].
pub fn build(parts: &Parts<'_>) -> Result<Vec<u8>, UkiError> {
    let line = parts.command_line;
    if line.len() > COMMAND_LINE || line.contains(['\n', '\r', '\0']) {
        return Err(UkiError::CommandLine(line.len()));
    }
    let padded = format!("{line:<COMMAND_LINE$}");
    let mut out = Image::of_stub(parts.stub)?;
    let stub = Arch::of_program(parts.stub).ok_or(UkiError::Stub("it is for another processor"))?;
    let kernel = processor_of(parts.kernel)?;
    if kernel != stub {
        return Err(UkiError::Processor { kernel, stub });
    }
    for (name, bytes) in [
        (".osrel", parts.os_release.as_bytes()),
        (".cmdline", padded.as_bytes()),
        (".initrd", parts.initramfs),
        (".linux", parts.kernel),
    ] {
        out.add(name, bytes)?;
    }
    Ok(out.bytes)
}

struct Image {
    bytes: Vec<u8>,
    headers: Headers,
    file_alignment: u32,
}

impl Image {
    fn of_stub(stub: &[u8]) -> Result<Self, UkiError> {
        let headers = Headers::read(stub).ok_or(UkiError::Stub("its headers are missing"))?;
        let mut bytes = stub.to_vec();
        let field = |at: usize| word(stub, headers.at + at).ok_or(UkiError::Stub("its headers are cut off"));
        let file_alignment = field(FILE_ALIGNMENT)?;
        if !(512..=65536).contains(&file_alignment) || !file_alignment.is_power_of_two() {
            return Err(UkiError::Stub("its file alignment is no power of two from 512 to 64 KiB"));
        }
        let mut end = field(SIZE_OF_HEADERS)?;
        for section in headers.each(stub) {
            let (name, raw, size, _) = section.ok_or(UkiError::Stub("its section table is cut off"))?;
            if [".linux", ".initrd", ".cmdline"].contains(&name.as_str()) {
                return Err(UkiError::IsUki(name));
            }
            end = end.max(raw.checked_add(size).ok_or(UkiError::Stub("a section ends beyond 4 GiB"))?);
        }
        if stub.len() < end as usize {
            return Err(UkiError::Stub("it is cut off"));
        }
        // Debian's stub has symbols behind its sections, which firmware does not read.
        bytes.truncate(end as usize);
        bytes[headers.at + SYMBOLS - 4..headers.at + SYMBOLS + 4].fill(0);
        bytes[headers.at + CHECKSUM..headers.at + CHECKSUM + 4].fill(0);
        // A signature of the stub alone went with its end.
        let signature = headers.at + CERTIFICATES..headers.at + CERTIFICATES + 8;
        if let (Some(5..), Some(entry)) = (word(stub, headers.at + DIRECTORIES), bytes.get_mut(signature)) {
            entry.fill(0);
        }
        Ok(Self { bytes, headers, file_alignment })
    }

    fn word(&self, at: usize) -> Result<u32, UkiError> {
        word(&self.bytes, self.headers.at + at).ok_or(UkiError::Stub("its headers are cut off"))
    }

    fn put(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn add(&mut self, name: &str, content: &[u8]) -> Result<(), UkiError> {
        let (large, at) = (|_| UkiError::TooLarge, self.headers.at);
        let size = u32::try_from(content.len()).map_err(large)?;
        let aligned = |value: u32, to: u32| value.checked_next_multiple_of(to).ok_or(UkiError::TooLarge);
        let entry = self.headers.table + self.headers.sections * SECTION_HEADER;
        if entry + SECTION_HEADER > self.word(SIZE_OF_HEADERS)? as usize {
            return Err(UkiError::Stub("its headers have no room for more sections"));
        }
        let in_memory = aligned(self.word(SIZE_OF_IMAGE)?, PAGE)?;
        let raw_size = aligned(size, self.file_alignment)?;
        let raw = aligned(u32::try_from(self.bytes.len()).map_err(large)?, self.file_alignment)?;
        let image = aligned(in_memory.checked_add(size).ok_or(UkiError::TooLarge)?, PAGE)?;
        let data = self.word(SIZE_OF_DATA)?.checked_add(raw_size).ok_or(UkiError::TooLarge)?;
        let end = raw.checked_add(raw_size).ok_or(UkiError::TooLarge)?;
        self.bytes.resize(raw as usize, 0);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(end as usize, 0);
        self.bytes[entry..entry + SECTION_HEADER].fill(0);
        self.bytes[entry..entry + name.len()].copy_from_slice(name.as_bytes());
        for (field, value) in [(8, size), (12, in_memory), (16, raw_size), (20, raw), (36, READABLE_DATA)] {
            self.put(entry + field, value);
        }
        self.put(at + SIZE_OF_IMAGE, image);
        self.put(at + SIZE_OF_DATA, data);
        self.headers.sections += 1;
        let count = u16::try_from(self.headers.sections).map_err(|_| UkiError::TooLarge)?;
        self.bytes[at + SECTIONS..at + SECTIONS + 2].copy_from_slice(&count.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use object::read::pe::PeFile64;
    use object::{Object as _, ObjectSection as _};

    use super::*;
    use crate::pe::{OPTIONAL, OPTIONAL_SIZE};

    /// A program with sections, and symbols behind them, as Debian's stub has.
    pub(crate) fn stub(sections: &[&str]) -> Vec<u8> {
        let mut file = vec![0; 0x400];
        file[..2].copy_from_slice(b"MZ");
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        let at = 0x80;
        put(0x3c, &128_u32.to_le_bytes());
        put(at, b"PE\0\0\x64\x86");
        put(at + SECTIONS, &[u8::try_from(sections.len()).unwrap()]);
        put(at + SYMBOLS - 4, &[0, 6, 0, 0, 1]);
        put(at + OPTIONAL_SIZE, &240_u16.to_le_bytes());
        put(at + OPTIONAL, &0x20b_u16.to_le_bytes());
        put(at + OPTIONAL + 32, &512_u32.to_le_bytes());
        put(at + FILE_ALIGNMENT, &512_u32.to_le_bytes());
        put(at + SIZE_OF_IMAGE, &0x1100_u32.to_le_bytes());
        put(at + SIZE_OF_HEADERS, &0x400_u32.to_le_bytes());
        put(at + OPTIONAL + 108, &[16]);
        for (n, name) in sections.iter().enumerate() {
            let entry = at + OPTIONAL + 240 + n * SECTION_HEADER;
            put(entry, name.as_bytes());
            let place = u32::try_from(0x1000 + 0x80 * n).unwrap();
            for (field, value) in [(8, 0x40), (12, place), (16, 0x200), (20, 0x400 + 0x200 * u32::try_from(n).unwrap())]
            {
                put(entry + field, &value.to_le_bytes());
            }
        }
        file.resize(0x400 + 0x200 * sections.len(), 0xcc);
        file.extend_from_slice(b"symbols");
        file
    }

    /// Of 5000 bytes.
    pub(crate) fn kernel() -> Vec<u8> {
        let mut kernel = stub(&[".text"]);
        kernel.truncate(0x600);
        kernel.resize(5000, 7);
        kernel
    }

    fn parts<'a>(stub: &'a [u8], kernel: &'a [u8]) -> Parts<'a> {
        Parts { stub, kernel, initramfs: &[9; 1], command_line: "quiet landfall.x=1", os_release: "NAME=Landfall\n" }
    }

    #[test]
    fn each_part_is_a_section_beyond_those_of_the_stub() {
        let (stub, kernel) = (stub(&[".text", ".sbat"]), kernel());
        let made = build(&parts(&stub, &kernel)).unwrap();
        let image = PeFile64::parse(&*made).unwrap();
        let sections: Vec<_> =
            image.sections().map(|s| (s.name().unwrap().to_owned(), s.address(), s.size())).collect();
        let names = [".text", ".sbat", ".osrel", ".cmdline", ".initrd", ".linux"];
        let places = [0x1000, 0x1080, 0x2000, 0x3000, 0x4000, 0x5000];
        let sizes = [0x40, 0x40, 14, 2047, 1, 5000];
        for (n, (name, address, size)) in sections.into_iter().enumerate() {
            assert_eq!((name.as_str(), address, size), (names[n], places[n], sizes[n]));
        }
        let content = |name: &str| image.section_by_name(name).unwrap().data().unwrap().to_vec();
        assert!(content(".cmdline").starts_with(b"quiet landfall.x=1  ") && content(".cmdline").ends_with(b"  "));
        assert_eq!((content(".linux"), content(".initrd")), (kernel, vec![9]));
        assert_eq!(image.nt_headers().optional_header.size_of_image.get(object::LittleEndian), 0x7000);
        assert_eq!(made.len() % 512, 0);
        assert!(!made.windows(7).any(|bytes| bytes == b"symbols"));
    }

    #[test]
    fn what_is_no_stub_is_refused() {
        let (good, kernel) = (stub(&[".text"]), kernel());
        let fails = |stub: &[u8]| build(&parts(stub, &kernel)).unwrap_err().to_string();
        assert!(fails(b"").contains("headers are missing"));
        assert!(fails(&stub(&[".text", ".linux"])).contains("already"));
        assert!(fails(&good[..0x500]).contains("cut off"));
        // 40 bytes each from 0x188 to 0x400: fifteen, and four are needed.
        assert!(fails(&stub(&[".a"; 12])).contains("no room"));
        for at in 0..good.len() {
            for value in [0, 0x7f, 0xff] {
                let mut wrong = good.clone();
                wrong[at] = value;
                drop(build(&parts(&wrong, &kernel)));
            }
            drop(build(&parts(&good[..at], &kernel)));
        }
        let line = |command_line: &str| build(&Parts { command_line, ..parts(&good, &kernel) });
        assert!(line(&"x".repeat(COMMAND_LINE)).is_ok());
        assert!(line(&"x".repeat(COMMAND_LINE + 1)).is_err() && line("a\nb").is_err());
    }

    #[test]
    fn stub_and_kernel_are_for_one_processor() {
        let (x86, kernel) = (stub(&[".text"]), kernel());
        let for_arm64 = |mut program: Vec<u8>| {
            program[0x84..0x86].copy_from_slice(&[0x64, 0xaa]);
            program
        };
        let (arm64, arm64_kernel) = (for_arm64(x86.clone()), for_arm64(kernel.clone()));
        let made = |stub, kernel| build(&parts(stub, kernel)).map_err(|error| error.to_string());
        assert!(made(&arm64, &arm64_kernel).is_ok());
        for (stub, kernel, said) in [
            (&x86, &arm64_kernel[..], "give linuxaa64.efi.stub as the stub"),
            (&arm64, &kernel[..], "give linuxx64.efi.stub as the stub"),
            (&arm64, b"\x1f\x8b\x08", "a gzip file; unpack it"),
            (&arm64, b"kernel", "no EFI program"),
        ] {
            assert!(made(stub, kernel).unwrap_err().contains(said), "{said}");
        }
    }
}
