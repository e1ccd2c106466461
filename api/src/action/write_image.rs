//! `writeImage`

mod image;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration, Download};
use super::rules::Rules;
use crate::{DiskSelector, DurationSpec, ImageSpec, Verify, issue::join};

/// Writes a disk image to exactly one disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteImageSpec {
    /// Which disk. Exactly one must match. Default: the only disk.
    #[serde(default)]
    pub disk: DiskSelector,
    /// The image: its `url`, and what proves it.
    pub image: ImageSpec,
    /// Labels of partitions in the disk's current GPT that are kept, with all their content. A workflow fails before
    /// any change if a label is missing, if two partitions have it, or if the image would overwrite its partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// What is checked besides the proof. Default: `none`.
    #[serde(default, skip_serializing_if = "Verify::is_none")]
    pub verify: Verify,
}

impl Declaration for WriteImageSpec {
    const INFO: ActionInfo = ActionInfo {
        // A download may break.
        attempts: 3,
        writes_image: true,
        secrets: &["image.access.authorization"],
        ..ActionInfo::new("Writes a disk image.", DurationSpec::from_secs(3600), 1)
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        rules.image(spec, path);
    }

    fn downloads(&self) -> Vec<Download> {
        // The image, and each file beside it.
        let image = &self.image;
        let access = image.access.clone().unwrap_or_default();
        let sums = image.sums.as_ref();
        let signatures = [image.signature.as_ref(), sums.and_then(|sums| sums.signature.as_ref())];
        let beside = [sums.map(|sums| &sums.url), image.index.as_ref().map(|index| &index.url)].into_iter().flatten();
        let beside = beside.chain(signatures.into_iter().flatten().map(|signature| &signature.url));
        let mut out = vec![Download { urls: image.urls().map(str::to_owned).collect(), access: access.clone() }];
        out.extend(beside.map(|url| Download { urls: vec![url.clone()], access: access.clone() }));
        out
    }
}
