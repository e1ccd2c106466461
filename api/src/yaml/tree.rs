//! YAML of any kind as a tree in which every node knows its place.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

/// A node and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlNode {
    /// Its line, from 1; of a block of text (`|`) its first one.
    pub line: u64,
    /// Its column, from 1; of a block of text where its lines begin.
    pub column: u64,
    /// What it is.
    pub value: YamlValue,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum YamlValue {
    /// A text, a number, a truth value or nothing.
    Scalar {
        /// As YAML reads it.
        value: Value,
        /// As the file has it, of what is no text: `0644` and `1.10` are more than the numbers 644 and 1.1.
        written: Option<String>,
    },
    /// A list.
    List(Vec<YamlNode>),
    /// A mapping, in the file's order.
    Map(Vec<YamlField>),
}

/// One field of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlField {
    /// Its name.
    pub name: String,
    /// The line of its name, from 1.
    pub line: u64,
    /// Its value.
    pub node: YamlNode,
}

impl YamlNode {
    /// The value without places.
    pub fn to_value(&self) -> Value {
        match &self.value {
            YamlValue::Scalar { value, .. } => value.clone(),
            YamlValue::List(items) => items.iter().map(Self::to_value).collect(),
            YamlValue::Map(fields) => fields.iter().map(|field| (field.name.clone(), field.node.to_value())).collect(),
        }
    }
}

/// What becomes of a key that stands twice in one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// The text is refused, as YAML wants it.
    Refused,
    /// The tree has both, in the file's order: other programs take the last.
    Kept,
}

/// Every document of a text.
pub(super) fn read(text: &str, duplicates: DuplicateKeys) -> Result<Vec<YamlNode>, serde_saphyr::Error> {
    let mut options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    if duplicates == DuplicateKeys::Kept {
        options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    }
    let trees: Vec<Spanned<Tree>> = serde_saphyr::from_multiple_with_options(text, options)?;
    Ok(trees.into_iter().map(|tree| node(tree, text)).collect())
}

fn node(tree: Spanned<Tree>, text: &str) -> YamlNode {
    let (at, span) = (tree.referenced, tree.defined.span());
    let written = || {
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        text.get(start..start.checked_add(length)?).map(|written| written.trim().to_owned())
    };
    let value = match tree.value {
        Tree::Scalar(value) => YamlValue::Scalar { written: if value.is_string() { None } else { written() }, value },
        Tree::List(items) => YamlValue::List(items.into_iter().map(|item| node(item, text)).collect()),
        Tree::Map(fields) => {
            let field = |(name, item): (Spanned<String>, Spanned<Tree>)| YamlField {
                line: name.referenced.line(),
                name: name.value,
                node: node(item, text),
            };
            YamlValue::Map(fields.into_iter().map(field).collect())
        }
    };
    YamlNode { line: at.line(), column: at.column(), value }
}

/// As serde reads it.
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list or a scalar")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }
    fn visit_none<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }
    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }
    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }
    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }
    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }
    fn visit_str<E: de::Error>(self, v: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Tree, D::Error> {
        Tree::deserialize(d)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
        }
        Ok(Tree::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str, duplicates: DuplicateKeys) -> Vec<YamlField> {
        match read(text, duplicates).unwrap().remove(0).value {
            YamlValue::Map(fields) => fields,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scalar_knows_how_it_was_written() {
        let text = "a: 0644\nb: 1.10\nc: &x y\nd: !!str 3\ne: *x\nf: |\n  one\n  two\n";
        let fields = fields(text, DuplicateKeys::Refused);
        let written: Vec<_> = fields
            .iter()
            .map(|field| match &field.node.value {
                YamlValue::Scalar { value, written } => (value.as_str(), written.as_deref()),
                _ => (None, None),
            })
            .collect();
        let expected =
            [(None, Some("0644")), (None, Some("1.10")), (Some("y"), None), (Some("3"), None), (Some("y"), None)];
        assert_eq!(written[..5], expected);
        assert_eq!(written[5].0, Some("one\ntwo\n"));
        let places: Vec<_> = fields.iter().map(|field| (field.line, field.node.line, field.node.column)).collect();
        assert_eq!((places[0], places[5]), ((1, 1, 4), (6, 7, 3)));
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_or_kept() {
        let text = "a: 1\na: 2\n";
        assert!(read(text, DuplicateKeys::Refused).is_err());
        let kept = fields(text, DuplicateKeys::Kept);
        let shown: Vec<_> = kept.iter().map(|field| (field.line, field.node.to_value())).collect();
        assert_eq!(shown, [(1, 1.into()), (2, 2.into())]);
    }
}
