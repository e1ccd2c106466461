//! What the commands print for people.

use std::io;
use std::io::Write;
use std::path::Path;

use landfall_image::drives::{Device, Verdict};
use landfall_image::inspect;
use landfall_image::inspect::Report;

/// Prints what is in `file`.
pub(crate) fn report(out: &mut impl Write, file: &Path, report: &Report) -> io::Result<()> {
    match report {
        Report::Index(index) => {
            writeln!(out, "{}: {}", file.display(), if index.bmap { "bmap" } else { "index of a packed image" })?;
            writeln!(out, "  raw      {}, {} of it zero", bytes(index.raw_bytes), {
                share(index.raw_bytes - index.data_bytes, index.raw_bytes)
            })?;
            if let (Some(stored), Some(fetched)) = (index.stored_bytes, index.fetched_bytes) {
                writeln!(
                    out,
                    "  stored   {}, of which the first installation fetches {}",
                    bytes(stored),
                    bytes(fetched)
                )?;
            }
            writeln!(out, "  chunks   {} with data, {} runs of zeros", index.data_chunks, index.zero_runs)?;
            writeln!(out, "  each     {}", bytes(index.chunk_bytes))?;
            writeln!(out, "  digest   {}", index.digest)?;
        }
        Report::Initramfs { sizes, modules, builtin, members, .. } => {
            header(out, file, "initramfs", sizes)?;
            writeln!(out, "  members  {}, {} of them modules", members.len(), modules.len())?;
            writeln!(out, "  kernel   {} modules built in", builtin.len())?;
            for member in members {
                writeln!(out, "  {:04o} {:>10} {}", member.mode, member.size, member.path)?;
            }
        }
        Report::Disk { sizes, sector_bytes, guid, partitions } => {
            header(out, file, "GPT disk image", sizes)?;
            writeln!(out, "  disk     {guid}, sectors of {sector_bytes} bytes")?;
            for part in partitions {
                writeln!(
                    out,
                    "  {:>3} {:>10} + {:<22} {} {} {}",
                    part.number,
                    part.start,
                    bytes(part.bytes),
                    part.type_guid,
                    part.guid,
                    part.name
                )?;
            }
        }
        Report::Uki(uki) => {
            writeln!(
                out,
                "{}: unified kernel image, {}",
                file.display(),
                if uki.is_signed { "signed" } else { "not signed" }
            )?;
            writeln!(out, "  stored   {}", bytes(uki.stored_bytes))?;
            writeln!(out, "  digest   {}", uki.digest)?;
            writeln!(out, "  sections {}", uki.sections.join(" "))?;
            writeln!(out, "  command  {}", uki.command_line)?;
            return self::report(out, file, &uki.initramfs);
        }
        Report::Medium(medium) => {
            writeln!(out, "{}: boot medium", file.display())?;
            writeln!(out, "  stored   {}", bytes(medium.stored_bytes))?;
            writeln!(out, "  digest   {}", medium.digest)?;
            writeln!(out, "  command  {}", medium.command_line)?;
            return self::report(out, file, &medium.initramfs);
        }
    }
    Ok(())
}

/// Prints what a boot image makes of these devices.
pub(crate) fn devices(out: &mut impl Write, devices: &[Device]) -> io::Result<()> {
    for device in devices {
        let Device { machine, bus, address, class, id, verdict } = device;
        let verdict = match verdict {
            Verdict::Driven { by } => format!("driven by {}", by.join(", ")),
            Verdict::Lacks { modules } => format!("NOT DRIVEN: the image lacks {}", modules.join(", ")),
            Verdict::NoDriver => "NOT DRIVEN: the image has no driver for it, nor had the machine".to_owned(),
            Verdict::Unknown { driver } => {
                format!(
                    "NOT KNOWN: the facts name no module of {driver}; it was built in, or an older agent gathered them"
                )
            }
        };
        writeln!(out, "{machine}  {bus} {address:<12} {id}  {class:<13} {verdict}")?;
    }
    Ok(())
}

fn header(out: &mut impl Write, path: &Path, kind: &str, sizes: &inspect::Sizes) -> io::Result<()> {
    writeln!(out, "{}: {kind}", path.display())?;
    writeln!(out, "  stored   {}", bytes(sizes.stored_bytes))?;
    writeln!(out, "  raw      {}", bytes(sizes.raw_bytes))?;
    writeln!(out, "  digest   {}", sizes.digest)
}

/// A part of a whole, in per cent.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1000 + u128::from(whole) / 2).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A number of bytes, exact and in MiB.
pub(crate) fn bytes(count: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    // Rounded for people; the exact number stands beside it.
    #[allow(clippy::cast_precision_loss)]
    let mib = count as f64 / MIB;
    format!("{count} ({mib:.1} MiB)")
}
