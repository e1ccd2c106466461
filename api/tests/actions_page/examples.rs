//! The YAML blocks of a page.

use landfall_api::{Document, Problem};

/// Each block with the number of its first line.
pub(crate) fn of(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        if line == "```yaml" {
            (inside, _) = (true, found.push((number + 2, String::new())));
        } else if line == "```" {
            inside = false;
        } else if let Some((_, text)) = found.last_mut().filter(|_| inside) {
            text.push_str(line);
            text.push('\n');
        }
    }
    found
}

/// What `landfall template validate` says. A block that is no whole document is a part of a template's list, as it stands in one
/// that is included: what the actions around it must do is not asked.
pub(crate) fn validated(name: &str, text: &str) -> Result<(), Vec<Problem>> {
    let template = "apiVersion: landfall.dev/v1alpha1\nkind: Template\nmetadata: { name: example }\nspec:\n  fragment: true\n  actions:\n";
    let whole = text.starts_with("apiVersion:");
    let text = if whole { text.to_owned() } else { format!("{template}{text}") };
    Document::from_yaml_str(name, &text).map(drop)
}
