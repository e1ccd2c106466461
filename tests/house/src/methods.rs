//! The number of methods of each type: a type with very many holds several ideas.

use std::collections::BTreeMap;

use anyhow::Context as _;
use syn::{Attribute, ImplItem, Item, Type};

/// Types with more hold several ideas.
pub const MOST: usize = 30;

/// The inherent methods of each type, over all its `impl` blocks without tests: by crate and name. Two types of one crate with
/// one name count as one.
///
/// # Errors
/// A file is no Rust.
pub fn by_type(texts: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for (path, text) in texts {
        let Some((of_crate, file)) = path.split_once("src/") else { continue };
        if file.contains("tests/") || file.ends_with("tests.rs") {
            continue;
        }
        let parsed = syn::parse_file(text).with_context(|| format!("cannot read {path}"))?;
        count(of_crate, &parsed.items, &mut counts);
    }
    Ok(counts)
}

fn count(of_crate: &str, items: &[Item], counts: &mut BTreeMap<String, usize>) {
    for item in items {
        match item {
            Item::Impl(block) if block.trait_.is_none() && !is_test(&block.attrs) => {
                let Type::Path(named) = &*block.self_ty else { continue };
                let Some(name) = named.path.segments.last() else { continue };
                let methods =
                    block.items.iter().filter(|item| matches!(item, ImplItem::Fn(method) if !is_test(&method.attrs)));
                *counts.entry(format!("{of_crate}{}", name.ident)).or_default() += methods.count();
            }
            Item::Mod(module) if !is_test(&module.attrs) => {
                let inside = module.content.as_ref().map(|(_, items)| items.as_slice());
                count(of_crate, inside.unwrap_or_default(), counts);
            }
            _ => {}
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let of_tests =
        |attribute: &Attribute| matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test");
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && of_tests(attribute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_all_blocks_count_except_in_tests() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let found = by_type(&BTreeMap::from([
            file(
                "a/src/lib.rs",
                "struct A; impl A { fn a() {} #[cfg(test)] fn t() {} } impl Clone for A { fn clone() {} }",
            ),
            file("a/src/b.rs", "mod c { impl super::A { fn b() {} } } #[cfg(test)] mod tests { impl A { fn x() {} } }"),
            file("a/src/tests.rs", "impl A { fn y() {} }"),
            file("b/src/lib.rs", "impl A { fn z() {} }"),
        ]))
        .unwrap();
        assert_eq!(found, BTreeMap::from([("a/A".to_owned(), 2), ("b/A".to_owned(), 1)]));
    }
}
