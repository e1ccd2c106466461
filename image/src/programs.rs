//! `landfall-image uki` and `sign`: programs that UEFI starts by itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use landfall_image::sign::SigningKey;
use landfall_image::{output, sign, uki};

use crate::show::bytes;

#[derive(Args)]
pub(crate) struct UkiArgs {
    /// The kernel, as `landfall-image initramfs --kernel-out` wrote it
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,
    /// The boot image
    #[arg(long, value_name = "FILE")]
    initramfs: PathBuf,
    /// The kernel's command line, for a machine that is not given another by a coordinator
    #[arg(long, value_name = "TEXT", default_value = "")]
    command_line: String,
    /// systemd's stub (Debian's package systemd-boot-efi); by default the one for the kernel's processor in /usr/lib/systemd/boot/efi
    #[arg(long, value_name = "FILE")]
    stub: Option<PathBuf>,
    /// The RSA key for Secure Boot, PEM, without a passphrase
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Its X.509 certificate, PEM or DER, which the firmware has in db
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Output file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Args)]
pub(crate) struct SignArgs {
    /// The program
    file: PathBuf,
    /// The RSA key for Secure Boot, PEM, without a passphrase
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Its X.509 certificate, PEM or DER, which the firmware has in db
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Output file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

fn signing_key(key: &Path, certificate: &Path) -> anyhow::Result<SigningKey> {
    let name = || format!("cannot sign with {} and {}", key.display(), certificate.display());
    SigningKey::new(&read(key)?, &read(certificate)?).with_context(name)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Makes a unified kernel image, signed if there is a key.
pub(crate) fn unified(args: &UkiArgs) -> anyhow::Result<()> {
    let signer = match (&args.key, &args.certificate) {
        (Some(key), Some(certificate)) => Some(signing_key(key, certificate)?),
        _ => None,
    };
    let (kernel, initramfs) = (read(&args.kernel)?, read(&args.initramfs)?);
    let name = uki::processor_of(&kernel).with_context(|| args.kernel.display().to_string())?.stub();
    let stub = read(&args.stub.clone().unwrap_or_else(|| Path::new("/usr/lib/systemd/boot/efi").join(name)))?;
    let os_release = format!("ID=landfall\nNAME=Landfall\nPRETTY_NAME=\"Landfall {}\"\n", env!("CARGO_PKG_VERSION"));
    let parts = uki::Parts {
        stub: &stub,
        kernel: &kernel,
        initramfs: &initramfs,
        command_line: &args.command_line,
        os_release: &os_release,
    };
    let image = uki::build(&parts)?;
    let image = signer.map_or_else(|| Ok(image.clone()), |signer| sign::sign(&image, &signer))?;
    write_program(&args.output, &image)
}

/// Signs a program.
pub(crate) fn signed(args: &SignArgs) -> anyhow::Result<()> {
    let program = read(&args.file)?;
    let name = || format!("cannot sign {}", args.file.display());
    write_program(&args.output, &sign::sign(&program, &signing_key(&args.key, &args.certificate)?).with_context(name)?)
}

fn write_program(path: &Path, program: &[u8]) -> anyhow::Result<()> {
    // What dbx names to forbid it.
    let hash = hex::encode(sign::digest(program)?);
    output::write_file(path, program)?;
    println!("{}", path.display());
    println!("  stored   {}", bytes(program.len() as u64));
    println!("  hash     {hash}");
    Ok(())
}
