//! The program that starts the BIOS disk which carries a workflow's receipt.
//!
//! A BIOS numbers its disks in an order of its own, which an operating system does not see, and iPXE can read no disk. So
//! where the coordinator knows of a receipt, the boot script loads this program: it looks for the receipt on each of the
//! BIOS's disks, and starts the one that carries it. `program.s` is its source and says how; `program.bin` is what a GNU
//! assembler makes of it, and a test compares the two.

use uuid::Uuid;

const PROGRAM: &[u8] = include_bytes!("program.bin");

/// Bytes at its end for what follows the uid in the receipt, with the length in the first.
const INDEX: usize = 32;

/// The program for the receipt of this workflow, or of one action of it.
pub fn program(workflow: Uuid, action: Option<u32>) -> Vec<u8> {
    // Both as text, the way receipts hold them.
    let uid = workflow.to_string();
    let index = action.map(|action| format!("\"actionIndex\":{action},")).unwrap_or_default();
    let mut program = PROGRAM[..PROGRAM.len() - uid.len() - INDEX].to_vec();
    program.extend_from_slice(uid.as_bytes());
    program.push(index.len() as u8);
    program.extend_from_slice(index.as_bytes());
    program.resize(PROGRAM.len(), 0);
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
    fn the_program_ends_with_the_receipt_and_fits_a_sector() {
        for (action, text) in
            [(None, ""), (Some(3), "\"actionIndex\":3,"), (Some(u32::MAX), "\"actionIndex\":4294967295,")]
        {
            let program = program(Uuid::from_u128(7), action);
            let (code, end) = program.split_at(program.len() - INDEX);
            assert!(code.ends_with(Uuid::from_u128(7).to_string().as_bytes()) && program.len() <= 512);
            assert_eq!((end[0] as usize, &end[1..=text.len()]), (text.len(), text.as_bytes()));
            assert_eq!(program.len(), PROGRAM.len());
        }
        assert!(PROGRAM[..PROGRAM.len() - INDEX].ends_with(Uuid::nil().to_string().as_bytes()));
    }

    #[test]
    fn a_receipt_on_disk_has_what_the_program_compares() {
        let receipt = r#"{"machineUid":"00000000-0000-0000-0000-000000000001","workflowUid":"00000000-0000-0000-0000-000000000007",
            "workflowName":"w","generation":1,"actionIndex":3,"state":"Done","writtenAt":"2026-01-01T00:00:00Z"}"#;
        let receipt: landfall_api::Receipt = serde_json::from_str(receipt).unwrap();
        let text = serde_json::to_string(&receipt).unwrap();
        let (_, after) = text.split_once(&receipt.workflow_uid.to_string()).unwrap();
        // The program looks through 400 bytes.
        assert!(after.find("\"actionIndex\":3,").is_some_and(|at| at + 253 < 400), "{text}");
    }
}
