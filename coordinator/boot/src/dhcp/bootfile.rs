//! Which file a netbooting client is sent to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use landfall_api::MacAddr;

use super::Silence;
use super::packet::Client;
use crate::arch::Arch;
use crate::config::Config;

/// The loader for BIOS PXE.
pub const BIOS_LOADER: &str = "undionly.kpxe";
/// The loader for x86-64 UEFI.
pub const UEFI_LOADER: &str = "snponly.efi";
/// The loader for arm64 UEFI; optional, Debian does not ship one.
pub const ARM64_LOADER: &str = "snponly-arm64.efi";

/// Where the boot services of this coordinator are, as machines see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootServer<A = Ipv4Addr> {
    /// The address for TFTP and HTTP; of IPv4, DHCP's server identifier too.
    pub address: A,
    /// Port of the plain HTTP service.
    pub http_port: u16,
    /// Whether [`ARM64_LOADER`] is there to be served.
    pub arm64: bool,
    /// Whether a unified kernel image for x86-64 is there to be served.
    pub uki: bool,
    /// Whether one for arm64 is.
    pub arm64_uki: bool,
}

/// What goes into the reply's boot file field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFile {
    /// A TFTP path or a whole URL; of IPv4 at most 127 bytes.
    pub name: String,
    /// The class the reply must carry in option 60 for the firmware to believe it.
    pub class: &'static str,
}

impl<A: Copy + Into<IpAddr>> BootServer<A> {
    /// What is configured, with this host's address.
    pub fn of(config: &Config, address: A) -> Self {
        Self {
            address,
            http_port: config.http.listen.port(),
            arm64: config.boot.bootloaders.join(ARM64_LOADER).is_file(),
            uki: config.boot.uki.is_some(),
            arm64_uki: config.boot.arm64.uki.is_some(),
        }
    }

    /// `http://address:port`, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", SocketAddr::new(self.address.into(), self.http_port))
    }

    /// Where iPXE fetches the script for one machine. iPXE itself fills in what stands in `${…}`: the UUID, because it
    /// knows the byte order that its SMBIOS has, which option 97 does not tell; platform and driver, because they show
    /// whether this iPXE came from us or from a ROM. At most 123 bytes, with the longest address and port.
    pub fn script_url(&self, mac: MacAddr, arch: Option<u16>) -> String {
        let filled_in = "uuid=${uuid}&platform=${platform}&chip=${netX/chip}";
        // From option 93: iPXE's own word for it would make the URL too long for the field.
        let arch = if matches!(arch, Some(11 | 19)) { "&arch=arm64" } else { "" };
        format!("{}/boot/ipxe?mac={mac}&{filled_in}{arch}", self.base_url())
    }

    /// The file for this client.
    ///
    /// # Errors
    /// [`Silence`] for one that does not netboot, or whose architecture has no loader here.
    pub fn boot_file(&self, client: Client, arch: Option<u16>, mac: MacAddr) -> Result<BootFile, Silence> {
        let tftp = |name: &str| Ok(BootFile { name: name.to_owned(), class: "PXEClient" });
        let http = |name: &str| Ok(BootFile { name: format!("{}/boot/{name}", self.base_url()), class: "HTTPClient" });
        // With an ending by which firmware knows a program, whatever the answer's type.
        let uki = |arch: Arch| http(&format!("uki{}/{}.efi", arch.ending(), mac.to_string().replace(':', "-")));
        match (client, arch) {
            (Client::Ordinary, _) => Err(Silence::NotNetbooting),
            (Client::Ipxe, _) => Ok(BootFile { name: self.script_url(mac, arch), class: "PXEClient" }),
            (Client::Pxe, Some(0)) => tftp(BIOS_LOADER),
            // 7 by the registry's errata, 9 by its text: firmware sends either for x86-64 UEFI.
            (Client::Pxe, Some(7 | 9)) => tftp(UEFI_LOADER),
            (Client::Pxe, Some(11)) if self.arm64 => tftp(ARM64_LOADER),
            (Client::Http, Some(16)) if self.uki => uki(Arch::X86_64),
            (Client::Http, Some(16)) => http(UEFI_LOADER),
            (Client::Http, Some(19)) if self.arm64_uki => uki(Arch::Arm64),
            (Client::Http, Some(19)) if self.arm64 => http(ARM64_LOADER),
            (Client::Pxe, Some(11)) | (Client::Http, Some(19)) => Err(Silence::NoArm64Loader),
            (Client::Pxe, Some(6)) | (Client::Http, Some(15)) => Err(Silence::Uefi32),
            (_, Some(arch)) => Err(Silence::Architecture(arch)),
            (_, None) => Err(Silence::NoArchitecture),
        }
    }
}
