//! What a program or library needs at run time, by its own dynamic section.

use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, elf};

use crate::arch::Arch;

/// What an ELF file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    /// The processor that it is for; `None`: another than those that Landfall is built for.
    pub(super) architecture: Option<Arch>,
    /// The loader that starts it; `None`: it is static, or a library.
    pub(super) loader: Option<String>,
    /// Libraries, by name.
    pub(super) needs: Vec<String>,
}

/// Reads an ELF file; `None` for one of another format.
///
/// # Errors
/// What is wrong with its headers.
pub(super) fn read(bytes: &[u8]) -> object::Result<Option<Elf>> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Ok(None);
    }
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let endian = file.endian();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut loader = None;
    for segment in file.elf_program_headers() {
        loader = loader.or(segment.interpreter(endian, bytes)?.map(text));
    }
    let dynamic = file.elf_dynamic_table()?;
    let needs = dynamic.iter().filter(|entry| entry.tag == elf::DT_NEEDED);
    let needs = needs.map(|entry| dynamic.string(entry).map(text)).collect::<object::Result<_>>()?;
    Ok(Some(Elf { architecture: Arch::of_elf(bytes), loader, needs }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_dynamic_program_names_its_loader_and_libraries() {
        // This machine's own: cc links it with the C library.
        let shell = fs::read("/bin/sh").unwrap();
        let found = read(&shell).unwrap().unwrap();
        assert!(found.loader.is_some_and(|loader| loader.contains("/ld-")), "no loader");
        assert!(found.needs.iter().any(|name| name.starts_with("libc.so")), "{:?}", found.needs);
    }

    #[test]
    fn a_static_program_needs_nothing() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = read(&own).unwrap().unwrap();
        assert_eq!((found.loader, found.needs), (None, Vec::new()));
        assert_eq!(read(b"#!/bin/sh\n").unwrap(), None);
        assert!(read(&[&elf::ELFMAG[..], b"cut"].concat()).is_err());
    }
}
