//! The actions of the template, and the disk that they work on.

use serde_json::{Map, Value};

use crate::names::Unique;

/// The list so far.
pub(super) struct List {
    pub(super) items: Vec<Value>,
    pub(super) names: Unique,
    /// The selector of a disk that actions name; `None`: what the list wrote before, or that which includes this one.
    target: Option<Value>,
    /// Whether a root is filled from an archive.
    root: bool,
}

impl Default for List {
    fn default() -> Self {
        Self { items: Vec::new(), names: Unique::labels(), target: None, root: false }
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

    /// A layout is on the list; `disk`: what actions must name, because no root stands on it.
    pub(super) fn divided(&mut self, disk: Option<Value>) {
        self.root = true;
        self.target = disk;
    }

    /// Whether a root file system is filled, which has no boot loader yet.
    pub(super) fn has_root(&self) -> bool {
        self.root
    }
}
