//! Where an image's stored bytes come from: one file a scheme, and mirrors over them.

mod file;
mod http;
mod locator;
mod mirrors;
mod oci;
mod proven;
mod userinfo;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Access, Defect, Format, Image, Observer, Proof, WriteError};
use file::FileSource;
pub use http::{Call, CallAnswer, CallError};
use http::{Connector, HttpSource, Patience};
pub(crate) use http::{ContentRange, bearer_challenge, claimed_format, encoding, retry_after};
pub(crate) use locator::{Locator, shown_text};
use mirrors::Mirrors;
use oci::OciSource;
pub(crate) use oci::proven_layer;
pub use oci::{ContainerImage, RootLayer, container_image, go_architecture, root_layers};
pub(crate) use oci::{Reference, choose_layer, only_of_list};
pub use proven::ProvenFile;

/// A stream of stored bytes, pulled by the fetch thread. Mends broken connections by itself, within bounds.
pub trait ImageSource: Send {
    /// What to call it in messages: its URL, without what may be secret in it.
    fn name(&self) -> &str;
    /// Fills a part of `buffer`, at least one byte; 0 at the end. Ends early once `stop` is set.
    ///
    /// # Errors
    /// [`WriteError`]; an end before the stated length is [`WriteError::Truncated`], never 0.
    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError>;
    /// How many bytes there are in all, once known.
    fn total(&self) -> Option<u64>;
    /// From now on reads give the stored bytes of `range` and then 0; an end of [`u64::MAX`] means the last byte. A new
    /// source reads everything.
    ///
    /// # Errors
    /// [`WriteError`]; what a server makes of it may show only with the next read.
    fn seek(&mut self, range: Range<u64>, stop: &AtomicBool) -> Result<(), WriteError>;
    /// The format the server claims, where it claims one we know (a Content-Type such as `application/zstd`, never the
    /// file's name). Known once something was read.
    fn claimed_format(&self) -> Option<Format> {
        None
    }
}

/// The image behind its URLs; nothing is fetched before the first read. `digest_guards`: a digest will show whether
/// bytes from different responses belong together.
///
/// # Errors
/// [`WriteError::BadFormat`] for a URL or an access that cannot be used, [`WriteError::Start`] if no client can be made.
pub fn open<'a>(
    image: &Image, digest_guards: bool, observer: &'a dyn Observer,
) -> Result<Box<dyn ImageSource + 'a>, WriteError> {
    let locators = image.urls.iter().map(|url| Locator::parse(url)).collect::<Result<Vec<_>, _>>()?;
    let patience = if locators.len() > 1 { Patience::among_mirrors() } else { Patience::alone() };
    let connector = connector(&locators, &image.access, observer)?;
    let one = |locator: &Locator| -> Box<dyn ImageSource + 'a> {
        let (connector, patience) = (Arc::clone(&connector), patience.clone());
        match locator {
            Locator::Http(url) => Box::new(HttpSource::new(connector, url.clone(), digest_guards, patience, observer)),
            Locator::File(path) => Box::new(FileSource::new(path)),
            Locator::Oci(reference) => {
                Box::new(OciSource::new(connector, reference.clone(), digest_guards, patience, observer))
            }
        }
    };
    let mut sources = locators.iter().map(one).collect::<Vec<_>>();
    match sources.len() {
        0 => Err(WriteError::BadFormat {
            subject: name_of(image).into(),
            reason: "it has no URL".into(),
            defect: Defect::Settings,
        }),
        1 => Ok(sources.remove(0)),
        _ => Ok(Box::new(Mirrors::new(sources, digest_guards, observer))),
    }
}

/// The image at this URL alone: of any format, with a partition table, and its server is asked as is usual.
pub fn image_at(url: impl Into<String>, proof: Proof) -> Image {
    Image { urls: vec![url.into()], proof, format: None, no_table: false, access: Access::default() }
}

/// The image's first URL.
pub(crate) fn name_of(image: &Image) -> &str {
    image.urls.first().map_or("an image without a URL", String::as_str)
}

/// The image's name in messages: without a query, because the query is often a secret signature.
pub fn shown_name(image: &Image) -> String {
    shown_text(name_of(image))
}

/// The stored bytes of a file that is open, from its start; `name` is what messages call it.
pub fn open_file(name: &str, file: File) -> Box<dyn ImageSource> {
    Box::new(FileSource::opened(name, file))
}

/// One client for all of them; their servers get the credentials.
fn connector(locators: &[Locator], access: &Access, observer: &dyn Observer) -> Result<Arc<Connector>, WriteError> {
    let own: Vec<_> = locators.iter().filter_map(Locator::server).collect();
    Ok(Arc::new(Connector::new(&own, access, observer)?))
}

/// All of a small file behind an `http(s):` or `file:` URL. `access` is used as it is: the caller leaves out what this
/// host must not get.
///
/// # Errors
/// [`WriteError::BadFormat`] for more than `limit` bytes; what the source says otherwise.
pub(crate) fn fetch_whole(
    url: &str, access: &Access, limit: u64, observer: &dyn Observer, stop: &AtomicBool,
) -> Result<Vec<u8>, WriteError> {
    let locator = Locator::parse(url)?;
    match &locator {
        Locator::Http(parsed) => {
            let connector = connector(std::slice::from_ref(&locator), access, observer)?;
            // Without a digest only a validator lets a resumption be joined.
            let mut source = HttpSource::new(connector, parsed.clone(), false, Patience::alone(), observer);
            whole(&mut source, limit, stop)
        }
        Locator::File(path) => whole(&mut FileSource::new(path), limit, stop),
        Locator::Oci(_) => Err(WriteError::BadFormat {
            subject: shown_text(url),
            reason: "oci:// can name only the image itself".into(),
            defect: Defect::Settings,
        }),
    }
}

/// Everything `source` gives, up to `limit` bytes.
fn whole(source: &mut dyn ImageSource, limit: u64, stop: &AtomicBool) -> Result<Vec<u8>, WriteError> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let n = source.read(&mut piece, stop)?;
        if n == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(piece.get(..n).unwrap_or_default());
        if bytes.len() as u64 > limit || source.total().is_some_and(|total| total > limit) {
            let reason = format!("it is larger than the limit of {limit} bytes for such a file");
            return Err(WriteError::BadFormat { subject: source.name().into(), reason, defect: Defect::Settings });
        }
    }
}
