//! Actions for which an agent needs more than a template says, as they are sent to it.

use crate::{DiskSelector, ImageSource, Pin, SecretText};

/// Writes a disk image to exactly one disk: `writeImage`.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteImage {
    /// Which disk.
    pub disk: DiskSelector,
    /// Which image, and what proves it.
    pub image: ImageSource,
    /// Labels of partitions that stay.
    pub keep: Vec<String>,
    /// Read everything back before the disk becomes bootable.
    pub read_back: bool,
}

/// A NoCloud seed for the installed disk: `cloudInit`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CloudInit {
    /// `user-data`, the whole file; may hold secrets.
    pub user_data: SecretText,
    /// `vendor-data`, the whole file, empty if there is none; may hold secrets.
    pub vendor_data: SecretText,
    /// `meta-data`, the whole file.
    pub meta_data: String,
    /// `network-config`, the whole file, empty if there is none; may hold secrets.
    pub network_config: SecretText,
    /// `None`: no phone-home unit is installed.
    pub phone_home: Option<PhoneHomeUnit>,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What the installed system needs to phone home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhoneHomeUnit {
    /// `https://…/phone-home`
    pub url: String,
    /// The same at the coordinators that take this one's place.
    pub other_urls: Vec<String>,
    /// Good for one machine and one workflow.
    pub bearer_token: SecretText,
    /// Any of these CA keys may have signed the server's certificate; never empty.
    pub ca_pins: Vec<Pin>,
}
