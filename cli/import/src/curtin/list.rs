//! The actions of the template, and the disk that they work on.

use serde_json::{Map, Value};

use crate::names::Unique;

/// The list so far.
pub(super) struct List {
    pub(super) items: Vec<Value>,
    pub(super) names: Unique,
    /// The selector of the disk with the root, which actions name; `None`: the disk that an image was written to, or that of
    /// the list which includes this one.
    pub(super) target: Option<Value>,
    image: bool,
}

impl Default for List {
    fn default() -> Self {
        Self { items: Vec::new(), names: Unique::labels(), target: None, image: false }
    }
}

impl List {
    /// Adds an action.
    pub(super) fn push(&mut self, name: &str, key: &str, spec: Value) {
        let mut item = Map::new();
        item.insert("name".to_owned(), self.names.give(name.to_owned()).into());
        item.insert(key.to_owned(), spec);
        self.items.push(Value::Object(item));
    }

    /// The fields of an action on the installed system, with its disk.
    pub(super) fn on_target(&self, mut fields: Value) -> Value {
        if let (Some(map), Some(disk)) = (fields.as_object_mut(), &self.target) {
            map.insert("disk".to_owned(), disk.clone());
        }
        fields
    }

    /// The system is an image of a disk.
    pub(super) fn writes_image(&mut self) {
        self.image = true;
    }

    /// Whether a root file system is filled, which has no boot loader yet.
    pub(super) fn has_root(&self) -> bool {
        !self.image && self.target.is_some()
    }
}
