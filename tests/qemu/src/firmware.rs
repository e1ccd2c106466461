//! Which firmware a machine starts with.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LabError;

/// Firmware of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// OVMF (EDK2); on arm64 AAVMF, the same.
    Uefi,
}

impl Firmware {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Uefi, Self::Bios];

    /// The word used in reports and on command lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bios => "bios",
            Self::Uefi => "uefi",
        }
    }
}

impl std::fmt::Display for Firmware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Firmware {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|f| f.as_str() == text)
            .ok_or_else(|| format!("\"{text}\" is not a firmware; use uefi or bios"))
    }
}

/// The keys of a firmware that knows Secure Boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// See [`SECURE_BOOT_KEY`].
    Debians,
    /// Those that a machine is bought with.
    Microsofts,
    /// Setup Mode.
    None,
}

/// Where distributions put OVMF: code, and the template of the variables.
const OVMF: &[(&str, &str)] = &[
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
];

/// The same for arm64.
const AAVMF: &[(&str, &str)] = &[("/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/AAVMF/AAVMF_VARS.fd")];
/// That of x86-64 with Secure Boot on, and Debian's test key as every key of the firmware.
const SECURE_OVMF: &[(&str, &str)] =
    &[("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd")];
/// The same code with Microsoft's keys.
const MICROSOFTS_OVMF: &[(&str, &str)] =
    &[("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd")];
/// The same code without any key: the firmware is in Setup Mode.
const SETUP_OVMF: &[(&str, &str)] = &[("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd")];
/// The key of [`Keys::Debians`], whose passphrase is `snakeoil`, and its certificate (Debian's package ovmf).
pub const SECURE_BOOT_KEY: (&str, &str) =
    ("/usr/share/ovmf/PkKek-1-snakeoil.key", "/usr/share/ovmf/PkKek-1-snakeoil.pem");

/// The iPXE that stands for a network card's boot ROM in BIOS machines, see [`rom_script`].
const IPXE_LKRN: &[&str] = &["/usr/lib/ipxe/ipxe.lkrn", "/boot/ipxe.lkrn", "/usr/share/ipxe/ipxe.lkrn"];

/// `user-class` is cleared before the boot program starts: the boot program would inherit it through the UNDI
/// interface's cached packets, and then not identify itself as iPXE. A ProxyDHCP's boot file has priority over the DHCP
/// server's own.
const ROM_SCRIPT: &str = "#!ipxe
set user-class PXEROM
dhcp || exit
clear user-class
isset ${proxydhcp/filename} && boot tftp://${proxydhcp/next-server}/${proxydhcp/filename} ||
isset ${filename} && boot tftp://${next-server}/${filename} ||
exit
";

/// UEFI's code and a machine's own copy of the variables (made once, so that boot entries survive power cuts).
pub(crate) fn edk2(dir: &Path, arm64: bool, keys: Option<Keys>) -> Result<(PathBuf, PathBuf), LabError> {
    let (known, what) = match (arm64, keys) {
        (true, None) => (AAVMF, "AAVMF (package qemu-efi-aarch64)"),
        (true, Some(_)) => return Err(missing("the lab has no Secure Boot for arm64", AAVMF[0].0)),
        (_, Some(Keys::Debians)) => (SECURE_OVMF, "OVMF (package ovmf)"),
        (_, Some(Keys::Microsofts)) => (MICROSOFTS_OVMF, "OVMF (package ovmf)"),
        (_, Some(Keys::None)) => (SETUP_OVMF, "OVMF (package ovmf)"),
        (_, None) => (OVMF, "OVMF (package ovmf)"),
    };
    let (code, template) = known
        .iter()
        .find(|(code, vars)| Path::new(code).exists() && Path::new(vars).exists())
        .ok_or_else(|| missing(what, known[0].0))?;
    let vars = dir.join("uefi-vars.fd");
    if !vars.exists() {
        std::fs::copy(template, &vars).map_err(LabError::file("cannot make", &vars))?;
    }
    Ok((PathBuf::from(code), vars))
}

/// A card's PXE ROM as an iPXE script.
///
/// QEMU's own boot ROMs are iPXE and say so in the DHCP user class, whereupon any server hands them the iPXE script at
/// once and neither TFTP nor `undionly.kpxe` is ever seen. Real cards carry the vendor's PXE ROM. So BIOS machines get
/// an iPXE that does not identify itself: same UNDI interface below, same TFTP, and the server's whole chain is run.
pub(crate) fn rom_script(dir: &Path) -> Result<(PathBuf, PathBuf), LabError> {
    let rom = IPXE_LKRN
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .ok_or_else(|| missing("iPXE (package ipxe)", IPXE_LKRN[0]))?;
    let script = dir.join("rom.ipxe");
    std::fs::write(&script, ROM_SCRIPT).map_err(LabError::file("cannot write", &script))?;
    Ok((rom, script))
}

fn missing(what: &str, path: &str) -> LabError {
    LabError::File {
        what: "cannot find",
        path: PathBuf::from(format!("{path}: {what}; run scripts/setup")),
        source: std::io::ErrorKind::NotFound.into(),
    }
}
