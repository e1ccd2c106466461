//! Manifests of the OCI image specification 1.1 and of Docker's schema 2: which layer is the disk image.

use landfall_api::Digest;
use serde::Deserialize;

use crate::source::http::format_of_type;

/// Where tools put the file's name.
const TITLE: &str = "org.opencontainers.image.title";
/// How many layers an error lists.
const LISTED: usize = 8;
/// The most layers of a root file system; overlay mounts, which run such images elsewhere, take 500.
const MAX_LAYERS: usize = 512;

/// A layer of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) digest: Digest,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) media_type: String,
    title: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u32,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    platform: Option<Platform>,
}

/// What a manifest of a list is for.
#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

fn document(bytes: &[u8]) -> Result<Document, String> {
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| format!("the registry's manifest cannot be read: {error}"))?;
    match document.schema_version {
        2 => Ok(document),
        other => Err(format!("the registry's manifest is of schema version {other}; only 2 is supported")),
    }
}

fn layer(descriptor: Descriptor) -> Result<Layer, String> {
    let title = descriptor.annotations.as_ref().and_then(|all| all.get(TITLE)).and_then(|title| title.as_str());
    let digest = descriptor.digest.parse().map_err(|error| format!("the registry's manifest: {error}"))?;
    let title = title.map(str::to_owned);
    Ok(Layer { digest, size: descriptor.size, media_type: descriptor.media_type, title })
}

/// The manifest that a list names if it names only one; `None` if it is no list.
///
/// # Errors
/// A clause, as for a format that cannot be used.
pub(crate) fn only_of_list(bytes: &[u8]) -> Result<Option<Digest>, String> {
    let Some(manifests) = document(bytes)?.manifests else { return Ok(None) };
    let count = manifests.len();
    match <[Descriptor; 1]>::try_from(manifests) {
        Ok([only]) => Ok(Some(layer(only)?.digest)),
        Err(_) => Err(format!(
            "it is a list of {count} manifests, for several platforms; name one of them by its digest (@sha256:…)"
        )),
    }
}

/// The manifest that a list names for Linux on this architecture (as Go names it), or the only one; `None` if it is no list.
///
/// # Errors
/// A clause, as for a format that cannot be used; it lists the platforms.
pub(crate) fn of_platform(bytes: &[u8], architecture: &str) -> Result<Option<Digest>, String> {
    let Some(manifests) = document(bytes)?.manifests else { return Ok(None) };
    if manifests.len() == 1 {
        return only_of_list(bytes);
    }
    let is_ours = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture;
    let (ours, others): (Vec<_>, Vec<_>) =
        manifests.into_iter().partition(|one| one.platform.as_ref().is_some_and(is_ours));
    match <[Descriptor; 1]>::try_from(ours) {
        Ok([only]) => Ok(Some(layer(only)?.digest)),
        Err(ours) if ours.is_empty() => {
            let platforms = others.into_iter().filter_map(|one| one.platform);
            let named = platforms.map(|one| format!("{}/{}", one.os, one.architecture)).take(LISTED);
            let named: String = named.collect::<Vec<_>>().join(", ").chars().take(300).collect();
            Err(format!("it has no image for linux/{architecture}, but for {named}"))
        }
        Err(ours) => Err(format!(
            "it has {} images for linux/{architecture}; name one of them by its digest (@sha256:…)",
            ours.len()
        )),
    }
}

/// Every layer of a root file system, the lowest first.
///
/// # Errors
/// A clause, as for a format that cannot be used.
pub(crate) fn root_layers(bytes: &[u8]) -> Result<Vec<Layer>, String> {
    let descriptors = document(bytes)?.layers.ok_or("the registry's manifest has no layers")?;
    if descriptors.is_empty() || descriptors.len() > MAX_LAYERS {
        return Err(format!("it has {} layers, and a root file system has 1 to {MAX_LAYERS}", descriptors.len()));
    }
    let layers = descriptors.into_iter().map(layer).collect::<Result<Vec<_>, _>>()?;
    match layers.iter().find(|layer| !is_tar(&layer.media_type)) {
        Some(other) => {
            let kind: String = other.media_type.chars().take(100).collect();
            Err(format!("its layer {} is of type {kind:?}, and no file tree", other.digest))
        }
        None => Ok(layers),
    }
}

/// Digest of an image's configuration: which program it runs, and how.
///
/// # Errors
/// A clause, as for a format that cannot be used.
pub(crate) fn config(bytes: &[u8]) -> Result<Digest, String> {
    let config = document(bytes)?.config.ok_or("the registry's manifest names no configuration")?;
    Ok(layer(config)?.digest)
}

/// The layer that is meant, or the only one that can be.
///
/// # Errors
/// A clause, as for a format that cannot be used; it lists what there is.
pub(crate) fn choose_layer(bytes: &[u8], wanted: Option<&str>) -> Result<Layer, String> {
    let descriptors = document(bytes)?.layers.ok_or("the registry's manifest has no layers")?;
    let layers = descriptors.into_iter().map(layer).collect::<Result<Vec<_>, _>>()?;
    let fits = |layer: &&Layer| match wanted {
        Some(wanted) => layer.title.as_deref() == Some(wanted) || layer.digest.to_string() == wanted,
        None => layers.len() == 1 || format_of_type(&layer.media_type).is_some(),
    };
    let fitting: Vec<_> = layers.iter().filter(fits).collect();
    match fitting.as_slice() {
        // Tools name a pushed file's layer so too, but then they give it the file's name.
        [only] if is_tar(&only.media_type) && only.title.is_none() && wanted.is_none() => {
            Err("it is a container image; its layers are file trees, not a disk image".into())
        }
        [only] => Ok((*only).clone()),
        [] => Err(format!("it has no such layer; it has {}", listed(&layers))),
        _ => Err(format!("it has several layers; name one with ?layer= and its title or digest: {}", listed(&layers))),
    }
}

fn is_tar(media_type: &str) -> bool {
    media_type.contains(".layer.") && media_type.contains("tar") || media_type.contains("rootfs.diff.tar")
}

fn listed(layers: &[Layer]) -> String {
    let one = |layer: &Layer| {
        let title = layer.title.as_deref().unwrap_or("no title").chars().take(64).collect::<String>();
        format!("{} ({title})", layer.digest)
    };
    let shown = layers.iter().take(LISTED).map(one).collect::<Vec<_>>().join(", ");
    match layers.len() {
        0 => "none".into(),
        all if all > LISTED => format!("{shown} and {} more", all - LISTED),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest(layers: &[(&str, u8, &str)]) -> Vec<u8> {
        let layer = |(media_type, digit, title): &(&str, u8, &str)| {
            let digest = format!("sha256:{}", format!("{digit:02x}").repeat(32));
            let annotations = if title.is_empty() { String::new() } else { format!(r#""{TITLE}":"{title}""#) };
            format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":9,"annotations":{{{annotations}}}}}"#)
        };
        let layers = layers.iter().map(layer).collect::<Vec<_>>().join(",");
        format!(r#"{{"schemaVersion":2,"layers":[{layers}]}}"#).into_bytes()
    }

    const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

    #[test]
    fn one_layer_is_chosen_and_several_need_a_name() {
        assert_eq!(choose_layer(&manifest(&[("x/y", 1, "")]), None).unwrap().size, 9);
        assert!(choose_layer(&manifest(&[(TAR, 1, "disk.img")]), None).is_ok(), "as tools push files");
        assert!(choose_layer(&manifest(&[(TAR, 1, "")]), None).unwrap_err().contains("container image"));
        let two = manifest(&[("x/y", 1, "a.img"), ("x/y", 2, "b.img")]);
        let error = choose_layer(&two, None).unwrap_err();
        assert!(error.contains("a.img") && error.contains("b.img"), "{error}");
        for wanted in ["b.img", &format!("sha256:{}", "02".repeat(32))] {
            assert_eq!(choose_layer(&two, Some(wanted)).unwrap().digest.as_bytes(), [2; 32]);
        }
        assert!(choose_layer(&two, Some("c.img")).unwrap_err().contains("a.img"));
        let typed = manifest(&[("text/plain", 1, "README"), ("application/zstd", 2, "b")]);
        assert_eq!(choose_layer(&typed, None).unwrap().digest.as_bytes(), [2; 32]);
    }

    #[test]
    fn lists_of_one_manifest_work_and_longer_ones_are_refused() {
        let list = |digests: usize| {
            let one = format!(r#"{{"digest":"sha256:{}","size":1}}"#, "07".repeat(32));
            format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, vec![one; digests].join(",")).into_bytes()
        };
        assert_eq!(only_of_list(&list(1)).unwrap().unwrap().as_bytes(), [7; 32]);
        assert!(only_of_list(&list(2)).unwrap_err().contains("2 manifests"));
        assert_eq!(only_of_list(&manifest(&[])).unwrap(), None);
    }

    #[test]
    fn the_image_of_this_architecture_is_found_in_a_list() {
        let one = |digit: u8, os: &str, architecture: &str| {
            let digest = format!("sha256:{}", format!("{digit:02x}").repeat(32));
            let platform = format!(r#"{{"os":"{os}","architecture":"{architecture}"}}"#);
            format!(r#"{{"digest":"{digest}","size":1,"platform":{platform}}}"#)
        };
        let list = |all: &[String]| format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, all.join(",")).into_bytes();
        let all = [
            one(1, "linux", "amd64"),
            one(2, "linux", "arm64"),
            one(3, "unknown", "unknown"),
            one(4, "windows", "amd64"),
        ];
        for (architecture, digit) in [("amd64", 1), ("arm64", 2)] {
            assert_eq!(of_platform(&list(&all), architecture).unwrap().unwrap().as_bytes(), [digit; 32]);
        }
        let missing = of_platform(&list(&all), "riscv64").unwrap_err();
        assert!(missing.contains("linux/riscv64") && missing.contains("windows/amd64"), "{missing}");
        let twice = [one(1, "linux", "amd64"), one(2, "linux", "amd64")];
        assert!(of_platform(&list(&twice), "amd64").unwrap_err().contains("2 images"));
        assert_eq!(
            of_platform(&list(&all[3..]), "amd64").unwrap().unwrap().as_bytes(),
            [4; 32],
            "the only one is meant"
        );
        assert_eq!(of_platform(&manifest(&[]), "amd64").unwrap(), None);
    }

    #[test]
    fn a_root_file_system_has_layers_of_files_alone() {
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let layers = root_layers(&manifest(&[(TAR, 1, ""), (docker, 2, "")])).unwrap();
        assert_eq!(layers.iter().map(|layer| layer.digest.as_bytes()[0]).collect::<Vec<_>>(), [1, 2]);
        assert!(root_layers(&manifest(&[(TAR, 1, ""), ("text/plain", 2, "")])).unwrap_err().contains("text/plain"));
        assert!(root_layers(&manifest(&[])).unwrap_err().contains("0 layers"));
        assert!(root_layers(&manifest(&[(TAR, 1, ""); 513])).unwrap_err().contains("513 layers"));
    }

    proptest! {
        #[test]
        fn no_manifest_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let good = manifest(&[("x/y", 1, "a")]);
            let cut = cut.min(good.len());
            let mixed = [&good[..cut], &bytes].concat();
            // Only a panic would fail this test.
            let _ = (
                only_of_list(&mixed),
                choose_layer(&mixed, None),
                choose_layer(&bytes, Some("a")),
                of_platform(&mixed, "amd64"),
                root_layers(&mixed),
            );
        }
    }
}
