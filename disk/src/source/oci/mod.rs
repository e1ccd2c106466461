//! A layer of an artefact in an OCI registry as a source: the manifest names it by its digest, the blob is plain HTTP.
//!
//! Written here rather than taken from the `oci-client` crate: that crate brings a second TLS library (aws-lc, which
//! wants cmake), a resolver over `getaddrinfo` and 150 crates into a static agent, for two GET requests and a token.

mod manifest;
mod reference;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use landfall_api::Digest;
use reqwest::Url;

use super::http::{Connector, HttpSource, Login, Patience, format_of_type};
use super::{ImageSource, connector, whole};
use crate::{Access, CancelFlag, Defect, Format, Observer, WriteError, pipeline::Hasher};
use manifest::Layer;
pub(crate) use manifest::{choose_layer, only_of_list};
pub(crate) use reference::Reference;
use reference::Version;

/// The largest manifest there may be, bytes: what the distribution specification makes registries take.
const MANIFEST_MAX: u64 = 4 << 20;
/// The largest configuration of an image, bytes: a hundred times the largest of Docker Hub's official images.
const CONFIG_MAX: u64 = 1 << 20;
/// What we read: OCI's and Docker's manifest of one image, and their lists, which are distinguished by what is in them.
const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// One layer; the manifest is fetched with the first read.
pub(super) struct OciSource<'a> {
    name: String,
    reference: Reference,
    connector: Arc<Connector>,
    digest_guards: bool,
    patience: Patience,
    observer: &'a dyn Observer,
    layer: Option<(Layer, HttpSource<'a>)>,
}

impl<'a> OciSource<'a> {
    pub(super) fn new(
        connector: Arc<Connector>, reference: Reference, digest_guards: bool, patience: Patience,
        observer: &'a dyn Observer,
    ) -> Self {
        Self { name: reference.to_string(), reference, connector, digest_guards, patience, observer, layer: None }
    }

    fn blob(&mut self, stop: &AtomicBool) -> Result<&mut HttpSource<'a>, WriteError> {
        let (_, source) = match self.layer.take() {
            Some(known) => self.layer.insert(known),
            None => {
                let login = Arc::new(Login::new(&self.reference.registry));
                let layer = layer_of(&self.reference, &self.connector, &login, &self.patience, self.observer, stop)?;
                let url = blob_url(&self.reference, &layer.digest)?;
                let (connector, patience) = (Arc::clone(&self.connector), self.patience.clone());
                let source = HttpSource::new(connector, url, self.digest_guards, patience, self.observer);
                self.layer.insert((layer, source.of_registry(login, None)))
            }
        };
        Ok(source)
    }
}

impl ImageSource for OciSource<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        let n = self.blob(stop)?.read(buffer, stop)?;
        match &self.layer {
            Some((layer, source)) if source.total().is_some_and(|total| total != layer.size) => {
                let (said, total) = (layer.size, source.total().unwrap_or_default());
                let reason = format!("its manifest states {said} bytes, but the registry has {total}");
                Err(WriteError::BadFormat { subject: self.name.clone(), reason, defect: Defect::Beside })
            }
            _ => Ok(n),
        }
    }

    fn total(&self) -> Option<u64> {
        self.layer.as_ref().map(|(layer, _)| layer.size)
    }

    fn seek(&mut self, range: Range<u64>, stop: &AtomicBool) -> Result<(), WriteError> {
        self.blob(stop)?.seek(range, stop)
    }

    /// By the layer's media type; registries give every blob as `application/octet-stream`.
    fn claimed_format(&self) -> Option<Format> {
        format_of_type(&self.layer.as_ref()?.0.media_type)
    }
}

/// Digest of the layer's bytes, as the manifest has it: with a pinned reference it proves them. With
/// `others` to ask, a registry that does not answer is left soon.
///
/// # Errors
/// As for a read of the image.
pub(crate) fn proven_layer(
    reference: &Reference, others: bool, access: &Access, observer: &dyn Observer, stop: &AtomicBool,
) -> Result<Digest, WriteError> {
    let connector = connector(&[super::Locator::Oci(reference.clone())], access, observer)?;
    let login = Arc::new(Login::new(&reference.registry));
    let patience = if others { Patience::among_mirrors() } else { Patience::alone() };
    Ok(layer_of(reference, &connector, &login, &patience, observer, stop)?.digest)
}

/// A layer of a root file system: a file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootLayer {
    /// What [`crate::open_source`] takes.
    pub url: String,
    /// Digest of its stored bytes, as the proven manifest has it.
    pub digest: Digest,
    /// Its stored bytes.
    pub size: u64,
}

/// A container image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerImage {
    /// Its root file system, the lowest layer first.
    pub layers: Vec<RootLayer>,
    /// Its configuration, proven: JSON of the OCI image specification, which nothing has looked at.
    pub config: Vec<u8>,
}

/// The layers of the root file system behind an `oci://…@sha256:…`, the lowest first. Of a list for several platforms, the
/// image for Linux on this architecture.
///
/// # Errors
/// [`WriteError::BadFormat`] for a URL that names no image by digest, and for one that is no root file system; otherwise as for a
/// read of the image.
pub fn root_layers(
    url: &str, access: &Access, observer: &dyn Observer, cancel: &CancelFlag,
) -> Result<Vec<RootLayer>, WriteError> {
    described(url, access, observer, cancel, |_, _| Ok(())).map(|(layers, ())| layers)
}

/// The same with the image's configuration.
///
/// # Errors
/// As of [`root_layers`]; [`WriteError::BadFormat`] for an image without a configuration.
pub fn container_image(
    url: &str, access: &Access, observer: &dyn Observer, cancel: &CancelFlag,
) -> Result<ContainerImage, WriteError> {
    let config = |registry: &Registry<'_>, manifest: &[u8]| {
        let digest = manifest::config(manifest).map_err(|reason| registry.bad(reason))?;
        registry.config(&digest, cancel.flag())
    };
    let (layers, config) = described(url, access, observer, cancel, config)?;
    Ok(ContainerImage { layers, config })
}

/// The layers, and what `more` makes of the image's own manifest.
fn described<T>(
    url: &str, access: &Access, observer: &dyn Observer, cancel: &CancelFlag,
    more: impl FnOnce(&Registry<'_>, &[u8]) -> Result<T, WriteError>,
) -> Result<(Vec<RootLayer>, T), WriteError> {
    let locator = super::Locator::parse(url)?;
    let super::Locator::Oci(reference) = &locator else { return Err(no_image(url)) };
    if reference.pinned().is_none() || reference.layer.is_some() {
        return Err(no_image(url));
    }
    let connector = connector(std::slice::from_ref(&locator), access, observer)?;
    let (login, patience) = (Arc::new(Login::new(&reference.registry)), Patience::alone());
    let registry = Registry { reference, connector: &connector, login: &login, patience: &patience, observer };
    let mut image = reference.clone();
    let mut bytes = registry.manifest(&reference.version, cancel.flag())?;
    if let Some(ours) = manifest::of_platform(&bytes, go_architecture()).map_err(|reason| registry.bad(reason))? {
        image.version = Version::Digest(ours);
        bytes = registry.manifest(&image.version, cancel.flag())?;
    }
    let layers = manifest::root_layers(&bytes).map_err(|reason| registry.bad(reason))?;
    let more = more(&registry, &bytes)?;
    let layer = |Layer { digest, size, .. }: Layer| {
        let url = Reference { layer: Some(digest.to_string()), ..image.clone() }.to_string();
        RootLayer { url, digest, size }
    };
    Ok((layers.into_iter().map(layer).collect(), more))
}

fn no_image(url: &str) -> WriteError {
    let reason = "it must be oci://registry/repository@sha256:… with the digest of a manifest".into();
    WriteError::BadFormat { subject: super::shown_text(url), reason, defect: Defect::Settings }
}

/// This machine's architecture in the words of images, which are Go's.
pub fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// How one registry is asked.
struct Registry<'a> {
    reference: &'a Reference,
    connector: &'a Arc<Connector>,
    login: &'a Arc<Login>,
    patience: &'a Patience,
    observer: &'a dyn Observer,
}

impl Registry<'_> {
    fn bad(&self, reason: String) -> WriteError {
        WriteError::BadFormat { subject: self.reference.to_string(), reason, defect: Defect::Beside }
    }

    /// A blob that is read whole.
    fn config(&self, digest: &Digest, stop: &AtomicBool) -> Result<Vec<u8>, WriteError> {
        let Self { reference, connector, login, patience, observer } = self;
        let url = blob_url(reference, digest)?;
        let source = HttpSource::new(Arc::clone(connector), url, false, (*patience).clone(), *observer);
        let bytes = whole(&mut source.of_registry(Arc::clone(login), None), CONFIG_MAX, stop)?;
        self.proven(bytes, digest)
    }

    /// These bytes, if that is their digest.
    fn proven(&self, bytes: Vec<u8>, expected: &Digest) -> Result<Vec<u8>, WriteError> {
        let mut hasher = Hasher::like(expected);
        hasher.update(&bytes);
        let actual = hasher.finish();
        if actual == *expected {
            return Ok(bytes);
        }
        Err(WriteError::DigestMismatch { url: self.reference.to_string(), expected: *expected, actual })
    }

    /// A manifest; one that is named by digest is a proven one.
    fn manifest(&self, version: &Version, stop: &AtomicBool) -> Result<Vec<u8>, WriteError> {
        let Self { reference, connector, login, patience, observer } = self;
        let url = manifest_url(reference, version)?;
        let source = HttpSource::new(Arc::clone(connector), url, false, (*patience).clone(), *observer);
        let bytes = whole(&mut source.of_registry(Arc::clone(login), Some(ACCEPT)), MANIFEST_MAX, stop)?;
        match version {
            Version::Digest(expected) => self.proven(bytes, expected),
            Version::Tag(_) => Ok(bytes),
        }
    }
}

fn layer_of(
    reference: &Reference, connector: &Arc<Connector>, login: &Arc<Login>, patience: &Patience,
    observer: &dyn Observer, stop: &AtomicBool,
) -> Result<Layer, WriteError> {
    let bad = |reason: String| WriteError::BadFormat { subject: reference.to_string(), reason, defect: Defect::Beside };
    let registry = Registry { reference, connector, login, patience, observer };
    let mut bytes = registry.manifest(&reference.version, stop)?;
    // A list that names one manifest stands for it; the digest in the list goes on proving what it names.
    if let Some(only) = manifest::only_of_list(&bytes).map_err(bad)? {
        bytes = registry.manifest(&Version::Digest(only), stop)?;
    }
    manifest::choose_layer(&bytes, reference.layer.as_deref()).map_err(bad)
}

fn manifest_url(reference: &Reference, version: &Version) -> Result<Url, WriteError> {
    joined(reference, &format!("/v2/{}/manifests/{version}", reference.repository))
}

fn blob_url(reference: &Reference, digest: &Digest) -> Result<Url, WriteError> {
    joined(reference, &format!("/v2/{}/blobs/{digest}", reference.repository))
}

fn joined(reference: &Reference, path: &str) -> Result<Url, WriteError> {
    reference.registry.join(path).map_err(|error| WriteError::Internal(format!("a registry's URL: {error}")))
}
