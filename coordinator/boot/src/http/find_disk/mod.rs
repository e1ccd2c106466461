//! The program that starts the BIOS disk which carries a workflow's receipt.
//!
//! A BIOS numbers its disks in an order of its own, which an operating system does not see, and iPXE can read no disk. So
//! where the coordinator knows of a receipt, the boot script loads this program: it looks for the receipt on each of the
//! BIOS's disks, and starts the one that carries it. `program.s` is its source and says how; `program.bin` is what a GNU
//! assembler makes of it, and a test compares the two.

use uuid::Uuid;

const PROGRAM: &[u8] = include_bytes!("program.bin");

/// The program for the receipt of this workflow.
pub fn program(workflow: Uuid) -> Vec<u8> {
    let mut program = PROGRAM.to_vec();
    // The uid stands at its end, as text, the way receipts hold it.
    let uid = workflow.to_string();
    let at = program.len().saturating_sub(uid.len());
    program[at..].copy_from_slice(uid.as_bytes());
    program
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;

    #[test]
    fn the_program_is_what_its_source_says() {
        let directory = tempfile::tempdir().unwrap();
        let (object, binary) = (directory.path().join("program.o"), directory.path().join("program.bin"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/find_disk/program.s");
        let assembled = Command::new("as").args(["--32", "-o"]).args([&object, &source]).status();
        if !cfg!(target_arch = "x86_64") || assembled.is_err() {
            eprintln!("SKIPPED: needs a GNU assembler for x86");
            return;
        }
        assert!(assembled.unwrap().success());
        let copied = Command::new("objcopy").args(["-O", "binary", "-j", ".text"]).args([&object, &binary]).status();
        assert!(copied.unwrap().success());
        assert_eq!(std::fs::read(binary).unwrap(), PROGRAM, "assemble program.s anew into program.bin");
    }

    #[test]
    fn the_program_ends_with_the_uid_and_fits_a_sector() {
        let uid = Uuid::from_u128(7);
        let program = program(uid);
        assert!(program.ends_with(uid.to_string().as_bytes()) && program.len() <= 512);
        assert!(PROGRAM.ends_with(Uuid::nil().to_string().as_bytes()));
        assert_eq!(program.len(), PROGRAM.len());
    }
}
