//! `landfall-image initramfs`: the boot image.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use landfall_image::initramfs::{self, ExtraFile};
use landfall_image::kernel::{KernelTree, Profile, Stored};
use landfall_image::output;

use crate::show::bytes;

#[derive(Args)]
pub(crate) struct InitramfsArgs {
    /// Directory a kernel package was unpacked to (dpkg-deb -x, rpm2cpio, tar); without it no drivers are packed
    #[arg(long, value_name = "DIR")]
    kernel_tree: Option<PathBuf>,
    /// Kernel version, if the directory contains several
    #[arg(long, value_name = "VERSION", requires = "kernel_tree")]
    kernel_version: Option<String>,
    /// Static program that becomes /init
    #[arg(long, visible_alias = "init", value_name = "FILE")]
    agent: PathBuf,
    /// Where the program is in the boot image, if not at /init
    #[arg(long, value_name = "PATH", default_value = "/init")]
    agent_path: String,
    /// Which drivers to pack
    #[arg(long, value_enum, default_value = "vm", requires = "kernel_tree")]
    profile: Profile,
    /// One more module, with what it needs (may be repeated)
    #[arg(long = "module", value_name = "NAME", requires = "kernel_tree")]
    modules: Vec<String>,
    /// Store the modules as they are, for an init that is not the agent; the agent decompresses those that it loads
    #[arg(long, requires = "kernel_tree")]
    plain_modules: bool,
    /// One more file (may be repeated); octal mode, 0755 by default
    #[arg(long = "file", value_name = "SOURCE:PATH[:MODE]", value_parser = extra_file)]
    files: Vec<ExtraFile>,
    /// A static busybox (Debian: busybox-static): a person at the machine gets a root shell, by Alt-F2 or at a serial console
    #[arg(long, value_name = "FILE", requires = "kernel_tree")]
    rescue_shell: Option<PathBuf>,
    /// A lib/firmware directory that provides the firmware named by the packed drivers
    #[arg(long, value_name = "DIR", requires = "kernel_tree")]
    firmware: Option<PathBuf>,
    /// zstd level
    #[arg(long, value_name = "1-22", default_value_t = initramfs::DEFAULT_LEVEL, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// Do not compress the boot image: for a kernel without zstd, or to be compressed with what it is put behind
    #[arg(long, conflicts_with = "level")]
    no_compress: bool,
    /// Output file for the boot image
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Where to copy the kernel itself; decompressed, if the package has it compressed
    #[arg(long, value_name = "FILE", requires = "kernel_tree")]
    kernel_out: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn pack(args: &InitramfsArgs) -> anyhow::Result<()> {
    let open = |dir: &PathBuf| KernelTree::open(dir, args.kernel_version.as_deref());
    let tree = args.kernel_tree.as_ref().map(open).transpose()?;
    let mut modules: BTreeSet<String> = tree.as_ref().map(|tree| args.profile.modules(tree)).unwrap_or_default();
    modules.extend(args.modules.iter().cloned());
    let recipe = initramfs::Recipe {
        tree: tree.as_ref(),
        init: &args.agent,
        init_path: args.agent_path.trim_start_matches('/'),
        modules: &modules,
        stored: if args.plain_modules { Stored::Plain } else { Stored::Zstd },
        files: &args.files,
        rescue_shell: args.rescue_shell.as_deref(),
        firmware: args.firmware.as_deref(),
        level: (!args.no_compress).then_some(args.level),
    };
    let packed = initramfs::pack(&recipe, &args.output)?;
    if let (Some(path), Some(tree)) = (&args.kernel_out, &tree) {
        output::write_file(path, &tree.read_kernel()?)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&packed)?);
        return Ok(());
    }
    println!("{}", args.output.display());
    println!("  kernel   {}", if packed.kernel.is_empty() { "(none)" } else { &packed.kernel });
    println!("  stored   {}", bytes(packed.stored_bytes));
    println!("  raw      {}", bytes(packed.raw_bytes));
    println!("  init     {}", bytes(packed.init_bytes));
    println!("  modules  {} in {} files", bytes(packed.module_bytes), packed.modules.len());
    if args.firmware.is_some() {
        let (have, lack) = (packed.firmware.len(), packed.firmware_missing.len());
        println!("  firmware {have} files; {lack} named by the drivers are missing in the directory");
    }
    println!("  digest   {}", packed.digest);
    Ok(())
}

fn extra_file(text: &str) -> Result<ExtraFile, String> {
    let mut parts = text.split(':');
    let (Some(source), Some(path), mode, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("write SOURCE:PATH or SOURCE:PATH:MODE".into());
    };
    let mode = u32::from_str_radix(mode.unwrap_or("0755"), 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or("the mode is octal, such as 0644")?;
    Ok(ExtraFile { source: source.into(), path: path.trim_start_matches('/').to_owned(), mode })
}
