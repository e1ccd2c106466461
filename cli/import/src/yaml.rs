//! Documents as YAML, and YAML inside of YAML.

use landfall_api::{DuplicateKeys, Problem, YamlNode, yaml_trees};
use serde_json::Value;

/// A document's text, with its last line ended.
pub(crate) fn text(document: &Value) -> String {
    // Long lines stay: a URL that is folded cannot be copied.
    let options = serde_saphyr::ser_options! { min_fold_chars: usize::MAX };
    let mut text = String::new();
    // A tree of JSON always has a text.
    if serde_saphyr::to_fmt_writer_with_options(&mut text, document, options).is_err() {
        text.clear();
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Reads a block of text that stands in another file as YAML: places are those of that file.
pub(crate) fn embedded(file: &str, block: &YamlNode, text: &str) -> Result<Vec<YamlNode>, Box<Problem>> {
    let before = usize::try_from(block.line.saturating_sub(1)).unwrap_or_default();
    let indent = " ".repeat(usize::try_from(block.column.saturating_sub(1)).unwrap_or_default());
    let mut placed = "\n".repeat(before);
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            placed.push_str(&indent);
        }
        placed.push_str(line);
    }
    yaml_trees(file, &placed, DuplicateKeys::Refused)
}
