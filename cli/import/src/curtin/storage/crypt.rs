//! `dm_crypt`: encryption under what stands on a device.

use landfall_api::EncryptSpec;

use super::{Reader, Thing};
use crate::{fields::Fields, names};

/// The Secret that is to hold the passphrases.
const SECRET: &str = "disk";

impl Reader<'_> {
    pub(super) fn crypt(&mut self, id: &str, entry: &mut Fields<'_>) -> bool {
        let volume = entry.text("volume").map(|text| text.text).unwrap_or_default();
        let name = entry.text("dm_name").map(|text| names::device(&text.text));
        let key = names::identifier(name.as_deref().unwrap_or(id));
        // The value is not repeated: it is a passphrase.
        let line = if entry.has("key") { entry.line_of("key") } else { entry.line_of("keyfile") };
        let file = entry.text("keyfile").map(|text| text.text);
        entry.get("key");
        for field in ["preserve", "path"] {
            entry.get(field);
        }
        self.wipe(entry);
        entry.no_counterpart(&["options"], "crypttab gets the usual ones", self.report);
        if file.is_some_and(|file| file.ends_with("random")) {
            let message =
                format!("{id}: a new key at each start has no counterpart; use a passphrase, or leave out encryption");
            self.report.todo(line, message);
            return false;
        }
        let Some(thing) = self.thing(&volume, entry.line) else { return false };
        let thing = self.whole(thing, &volume, entry.line);
        if matches!(thing, Thing::Group(_) | Thing::Disk(_)) {
            self.report.todo(entry.line, format!("{id}: {volume} cannot be encrypted; name a device"));
            return false;
        }
        let message = format!("the passphrase is not copied; apply it as a Secret named {SECRET} with the key {key}");
        self.report.todo(line, message);
        self.spec.keys.insert(key.clone(), format!("{{{{ secrets.{SECRET}.{key} }}}}"));
        let Some(stands) = self.stands(thing) else { return false };
        *stands.encrypt = Some(EncryptSpec { key, name });
        self.things.insert(id.to_owned(), thing);
        true
    }
}
