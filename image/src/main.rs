//! `landfall-image`: the command line over the library.

mod boot_image;
mod programs;
mod show;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, StdoutLock, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use landfall_image::disk::filesystem::RootFs;
use landfall_image::disk::layout::Sector;
use landfall_image::drives::Carried;
use landfall_image::inspect::Report;
use landfall_image::kernel::KernelTree;
use landfall_image::{disk, drives, inspect, iso, pack, tools};

use self::programs::{SignArgs, UkiArgs};
use self::show::{bytes, share};

/// Packs the boot image; builds and inspects OS disk images.
#[derive(Parser)]
#[command(name = "landfall-image", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Pack a boot image (newc cpio, zstd) from a static init and an unpacked kernel package
    ///
    /// Without a kernel package: the agent alone, to be put behind an initramfs of your own.
    Initramfs(boot_image::InitramfsArgs),
    /// Make a unified kernel image: kernel, boot image and command line as one program that UEFI starts by itself
    ///
    /// A coordinator that has it as boot.uki gives it to firmware that boots from HTTP, with each machine's own command line in it.
    Uki(UkiArgs),
    /// Sign an EFI program, such as a unified kernel image, for Secure Boot
    ///
    /// A program that is signed already gets one signature more.
    Sign(SignArgs),
    /// Make a boot medium: an ISO that BIOS and UEFI start from a CD, a BMC's virtual CD or a USB stick; for arm64 UEFI alone
    ///
    /// It is the same for every machine, so its command line holds no token: the agent asks the coordinator for one.
    Iso(IsoArgs),
    /// Assemble a GPT disk image that boots on BIOS and UEFI from a directory with its root file system
    OsDisk(OsDiskArgs),
    /// Pack a disk image so that machines fetch, check and decode only the parts they lack
    ///
    /// Writes a .zst file that any zstd tool unpacks, and beside it an index with the digest of every chunk. A template
    /// that names the index needs no other digest.
    Pack(PackArgs),
    /// Make the tools layer (squashfs): the worker, and programs of unpacked Debian packages with what they need
    Tools(ToolsArgs),
    /// Show what a boot image, a disk image or an index contains
    Inspect(InspectArgs),
}

#[derive(Args)]
struct IsoArgs {
    /// The kernel, as `landfall-image initramfs --kernel-out` wrote it
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,
    /// The boot image
    #[arg(long, value_name = "FILE")]
    initramfs: PathBuf,
    /// The kernel's command line, with landfall.coordinator and landfall.ca
    #[arg(long, value_name = "TEXT")]
    command_line: String,
    /// GRUB's platform directories (i386-pc and x86_64-efi; for a kernel of arm64 arm64-efi)
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/grub")]
    grub: PathBuf,
    /// Output file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Args)]
struct OsDiskArgs {
    /// Directory that becomes the root file system; /boot/grub/grub.cfg in it is GRUB's configuration
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Label of the root file system
    #[arg(long, default_value = "root")]
    label: String,
    /// Seed for all identifiers (disk, partitions, file systems)
    #[arg(long, value_name = "TEXT")]
    seed: String,
    /// Kind of the root file system. xfs and btrfs are made by mounting them: that needs root
    #[arg(long, value_enum, default_value = "ext4")]
    root_fs: RootFs,
    /// Size of the root file system
    #[arg(long, value_name = "MIB")]
    root_mib: u32,
    /// Directory that becomes an ext4 file system of its own with the label "var"; the root's fstab must name it
    #[arg(long, value_name = "DIR", requires = "var_mib")]
    var: Option<PathBuf>,
    /// Size of that file system
    #[arg(long, value_name = "MIB", requires = "var")]
    var_mib: Option<u32>,
    /// Size of the EFI system partition
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(8..=4096))]
    esp_mib: u32,
    /// Logical sector size of the disks it is for. A disk with 4096 (4Kn) starts on UEFI only
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = sector)]
    sector_size: Sector,
    /// GRUB's platform directories (i386-pc, x86_64-efi)
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/grub")]
    grub: PathBuf,
    /// zstd level of the stored image
    #[arg(long, value_name = "1-22", default_value_t = 9, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// Directory for disk.img.zst, disk.img.zst.sha256 and disk.json; created if it does not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Also keep the uncompressed disk.img (sparse)
    #[arg(long)]
    keep_raw: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct PackArgs {
    /// Disk image: raw, or compressed with zstd, gzip or xz (by content); - is the standard input
    input: PathBuf,
    /// Output file for the packed image
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Output file for its index [default: OUTPUT.index.json]
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// zstd level
    #[arg(long, value_name = "1-22", default_value_t = pack::DEFAULT_LEVEL, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// Raw size of a chunk, a power of two from 4KiB to 16MiB [default: 1MiB; more for images of more than 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    chunk: Option<u64>,
    /// Number of threads; the result does not depend on it [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ToolsArgs {
    /// Directory a linux-image package was unpacked to (dpkg-deb -x): that of the boot image
    #[arg(long, value_name = "DIR")]
    kernel_tree: PathBuf,
    /// Kernel version, if the directory contains several
    #[arg(long, value_name = "VERSION")]
    kernel_version: Option<String>,
    /// The static program landfall-worker
    #[arg(long, value_name = "FILE")]
    worker: PathBuf,
    /// Directory with Debian packages, each unpacked (dpkg-deb -x) to a directory PACKAGE_VERSION; not needed without programs and
    /// files
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
    /// Which programs and kernel modules to pack
    #[arg(long, value_enum, default_value = "storage")]
    profile: ToolsProfile,
    /// One more program (may be repeated)
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// One more file of a package (may be repeated)
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<String>,
    /// One more module, with what it needs (may be repeated)
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Output file for the layer
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// What a tools layer is for.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ToolsProfile {
    /// Partitions, file systems, RAID, LVM and encryption.
    Storage,
    /// Only the worker, and what is named.
    None,
}

#[derive(Args)]
struct InspectArgs {
    /// Initramfs or disk image, plain or zstd; a unified kernel image; an index or a bmap
    file: PathBuf,
    /// Say which devices of these machines the boot image can drive, and fail if it cannot drive a storage or network device;
    /// write the file with: landfall get machine NAME -o yaml, or on the machine: landfall-agent facts -o json
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// How to print
    #[arg(short, long = "output", value_enum, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn sector(text: &str) -> Result<Sector, String> {
    [Sector::Bytes512, Sector::Bytes4096]
        .into_iter()
        .find(|sector| sector.bytes().to_string() == text)
        .ok_or_else(|| "write 512 or 4096".into())
}

/// Bytes, or a number with KiB or MiB (or K, M) behind it.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        _ => return Err("write bytes, or a number with KiB or MiB".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "write a whole number, such as 512KiB or 4MiB")?;
    number.checked_mul(1 << shift).ok_or_else(|| "the number is too large".into())
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Initramfs(args) => boot_image::pack(&args),
        Command::Uki(args) => programs::unified(&args),
        Command::Sign(args) => programs::signed(&args),
        Command::Iso(args) => medium(&args),
        Command::OsDisk(args) => os_disk(&args),
        Command::Pack(args) => pack_disk(&args),
        Command::Tools(args) => tools_layer(&args),
        Command::Inspect(args) => show(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("landfall-image: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn medium(args: &IsoArgs) -> anyhow::Result<()> {
    let IsoArgs { kernel, initramfs, command_line, grub, output } = args;
    let stored = iso::build(&iso::Recipe { kernel, initramfs, command_line, grub }, output)?;
    println!("{}", output.display());
    println!("  stored   {}", bytes(stored));
    Ok(())
}

fn os_disk(args: &OsDiskArgs) -> anyhow::Result<()> {
    fs::create_dir_all(&args.output).with_context(|| format!("cannot make {}", args.output.display()))?;
    let recipe = disk::Recipe {
        root: &args.root,
        label: &args.label,
        seed: disk::seed::Seed::new(&args.seed),
        sector: args.sector_size,
        root_fs: args.root_fs,
        root_mib: args.root_mib,
        var: args.var.as_deref().zip(args.var_mib),
        esp_mib: args.esp_mib,
        grub: &args.grub,
        level: args.level,
        keep_raw: args.keep_raw,
    };
    let assembled = disk::assemble(&recipe, &args.output)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&assembled)?);
        return Ok(());
    }
    println!("{}", args.output.join(disk::assemble::STORED).display());
    println!("  stored   {}", bytes(assembled.stored_bytes));
    println!("  raw      {}", bytes(assembled.raw_bytes));
    println!("  digest   {}", assembled.digest);
    Ok(())
}

fn pack_disk(args: &PackArgs) -> anyhow::Result<()> {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let recipe = pack::Recipe {
        input: &args.input,
        output: &args.output,
        index: args.index.as_deref(),
        level: args.level,
        chunk: args.chunk,
        threads,
    };
    let packed = pack::pack(&recipe)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&packed)?);
        return Ok(());
    }
    let chunks = packed.data_chunks + packed.zero_chunks;
    println!("{}", packed.file.display());
    println!("  raw      {}", bytes(packed.raw_bytes));
    println!("  stored   {}, {} of raw", bytes(packed.stored_bytes), share(packed.stored_bytes, packed.raw_bytes));
    println!("  fetched  {} by the first installation", bytes(packed.fetched_bytes));
    println!("  chunks   {chunks} of {}, {} zero", bytes(packed.chunk_bytes), share(packed.zero_chunks, chunks));
    println!("  digest   {}", packed.digest);
    println!("  of raw   {}", packed.raw_digest);
    println!("{}", packed.index.display());
    println!("  stored   {}", bytes(packed.index_bytes));
    println!("  digest   {}", packed.index_digest);
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    println!("\nFor a template; replace SERVER with the address that serves both files:\n");
    println!("image:");
    println!("  url: http://SERVER/{}", name(&packed.file));
    println!("  index:");
    println!("    url: http://SERVER/{}", name(&packed.index));
    println!("    digest: {}", packed.index_digest);
    Ok(())
}

fn tools_layer(args: &ToolsArgs) -> anyhow::Result<()> {
    let tree = KernelTree::open(&args.kernel_tree, args.kernel_version.as_deref())?;
    let all = |known: &[&str], more: &[String]| {
        let known = known.iter().filter(|_| args.profile == ToolsProfile::Storage).map(|name| (*name).to_owned());
        known.chain(more.iter().cloned()).collect::<BTreeSet<String>>()
    };
    let recipe = tools::Recipe {
        tree: &tree,
        worker: &args.worker,
        packages: args.packages.as_deref(),
        programs: &all(tools::PROGRAMS, &args.programs),
        files: &all(tools::FILES, &args.files),
        modules: &all(tools::MODULES, &args.modules),
    };
    let packed = tools::pack(&recipe, &args.output)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&packed)?);
        return Ok(());
    }
    let manifest = &packed.manifest;
    println!("{}", args.output.display());
    println!("  kernel   {}, {}", manifest.kernel, manifest.architecture);
    println!("  protocol {}", manifest.protocol);
    println!("  stored   {}, and as much memory on a machine", bytes(packed.stored_bytes));
    println!("  raw      {}", bytes(packed.raw_bytes));
    println!("  modules  {}", manifest.modules.len());
    for program in &manifest.programs {
        println!("  program  {} of {} {}", program.path, program.package, program.version);
    }
    println!("  digest   {}", packed.digest);
    Ok(())
}

fn show(args: &InspectArgs) -> anyhow::Result<()> {
    let report = inspect::inspect(&args.file)?;
    let Some(facts) = &args.facts else {
        return printed(|out| match args.output {
            Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?),
            Format::Text => show::report(out, &args.file, &report),
        });
    };
    let Some(Report::Initramfs { modules, builtin, aliases, .. }) = report.initramfs() else {
        bail!(
            "{} is no boot image: --facts needs an initramfs, a unified kernel image or a boot medium",
            args.file.display()
        );
    };
    let text = fs::read_to_string(facts).with_context(|| format!("cannot read {}", facts.display()))?;
    let carried = Carried { modules, builtin, aliases };
    let devices = drives::judge(&facts.display().to_string(), &text, &carried).map_err(anyhow::Error::msg)?;
    printed(|out| match args.output {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&devices)?),
        Format::Text => show::devices(out, &devices),
    })?;
    let missed = devices.iter().filter(|device| device.is_missed()).count();
    if missed > 0 {
        bail!(
            "{} does not drive, or is not known to drive, {missed} storage or network devices of {}; add their drivers with --module, or use \
             --profile server",
            args.file.display(),
            facts.display()
        );
    }
    Ok(())
}

/// Writes to standard output. A reader that has enough, such as `head`, is no failure.
fn printed(write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) -> anyhow::Result<()> {
    match write(&mut io::stdout().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
