//! A virtual drive in Redfish's words (VirtualMedia): what it holds, and what is to be sent so that it holds a medium. Pure.

use serde_json::{Value, json};

use super::field::{at, link, text};
use crate::BootDevice;
use crate::error::BmcError;

/// What a virtual drive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Nothing.
    Nothing,
    /// A medium by URL.
    Medium,
    /// What a person put in, from the BMC's own page.
    Persons,
}

/// A virtual drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    /// The path of its resource.
    pub(super) path: String,
    /// What the computer sees.
    pub(super) device: BootDevice,
    pub(super) holds: Holds,
    /// The URL, where it is shown.
    image: Option<String>,
    /// The path of the action that inserts; absent: the resource itself is changed.
    pub(super) insert: Option<String>,
    /// The path of the action that ejects; absent: as above.
    pub(super) eject: Option<String>,
}

/// The drive that a resource is; absent: a medium of ours cannot be in it.
pub(super) fn read(path: &str, resource: &Value) -> Option<Slot> {
    let types = at(resource, &["MediaTypes"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has = |wanted: &str| types.iter().filter_map(Value::as_str).any(|one| one.eq_ignore_ascii_case(wanted));
    let device = match () {
        () if has("CD") || has("DVD") => BootDevice::Cd,
        // The medium is a hybrid: it starts as a stick too.
        () if has("USBStick") => BootDevice::Usb,
        () => return None,
    };
    let image = text(resource, &["Image"]);
    let via = text(resource, &["ConnectedVia"]).unwrap_or_default();
    let inserted = at(resource, &["Inserted"]).and_then(Value::as_bool);
    let holds = match inserted {
        // Supermicro's leave `Inserted` and `Image` as they were.
        _ if via.eq_ignore_ascii_case("NotConnected") => Holds::Nothing,
        Some(false) => Holds::Nothing,
        None if image.is_none() => Holds::Nothing,
        _ if via.eq_ignore_ascii_case("Applet") => Holds::Persons,
        _ => Holds::Medium,
    };
    let action = |name: &str| link(resource, &["Actions", name, "target"]);
    let (insert, eject) = (action("#VirtualMedia.InsertMedia"), action("#VirtualMedia.EjectMedia"));
    Some(Slot { path: path.to_owned(), device, holds, image, insert, eject })
}

impl Slot {
    /// Whether it holds this medium, which was put into that drive if it is known.
    pub(super) fn has(&self, url: &str, drive: Option<&str>) -> bool {
        self.holds == Holds::Medium
            && match &self.image {
                Some(shown) if shown.contains("://") => shown == url,
                // Some show the file's name alone.
                Some(shown) => shown.rsplit(['/', '\\']).next() == url.rsplit('/').next(),
                None => drive == Some(&self.path),
            }
    }

    /// Whether it shows that it holds the medium at this very URL.
    pub(super) fn shows(&self, url: &str) -> bool {
        self.holds == Holds::Medium && self.image.as_deref() == Some(url)
    }

    /// What it holds, for a message.
    pub(super) fn describe(&self) -> String {
        match (self.holds, &self.image) {
            (Holds::Nothing, _) => "no medium".to_owned(),
            (_, Some(image)) => image.clone(),
            (_, None) => "a medium without a name".to_owned(),
        }
    }
}

/// The drive to use: a CD before a stick; the one that holds the medium, before one that has an action for it, before an empty one.
pub(super) fn choose(slots: Vec<Slot>, url: &str) -> Option<Slot> {
    let free = slots.into_iter().filter(|slot| slot.holds != Holds::Persons);
    let order = |slot: &Slot| {
        (slot.device != BootDevice::Cd, !slot.shows(url), slot.insert.is_none(), slot.holds != Holds::Nothing)
    };
    free.min_by_key(order)
}

/// What to send to the action, the plainest first: Supermicro's refuse more than the URL, some demand the rest of the first version
/// of the schema, and others the protocol (Lenovo, HPE).
pub(super) fn requests(url: &str) -> [Value; 3] {
    [
        json!({ "Image": url }),
        json!({ "Image": url, "Inserted": true, "WriteProtected": true }),
        json!({ "Image": url, "TransferProtocolType": "HTTP", "TransferMethod": "Stream" }),
    ]
}

/// What to write into the resource, where there is no action. Lenovo's insert nothing without `Inserted`; HPE's of iLO 4 may not be
/// given it.
pub(super) fn inserted(url: &str) -> [Value; 2] {
    [json!({ "Image": url, "Inserted": true, "WriteProtected": true }), json!({ "Image": url })]
}

/// The reverse.
pub(super) fn ejected() -> [Value; 2] {
    [json!({ "Image": null, "Inserted": false }), json!({ "Image": null })]
}

/// Whether a refusal is about how the request is written, and not about the medium.
pub(super) fn is_of_the_request(error: &BmcError) -> bool {
    let BmcError::Failed { said, .. } = error else { return false };
    let said = said.to_ascii_lowercase();
    ["parameter", "property", "properties", "transfer", "writeprotected"].iter().any(|word| said.contains(word))
}

/// Why a task has failed; absent: it has not.
pub(super) fn failure_of(task: &Value) -> Option<String> {
    let state = text(task, &["TaskState"])?;
    if !["Exception", "Killed", "Cancelled"].contains(&state.as_str()) {
        return None;
    }
    let messages = at(task, &["Messages"]).and_then(Value::as_array);
    // The first is that it has begun.
    let last = messages.and_then(|all| all.iter().rev().find_map(|one| text(one, &["Message"])));
    Some(last.unwrap_or(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://192.0.2.1:7480/boot/landfall.iso";

    fn slot(resource: Value) -> Option<Slot> {
        read("/s", &resource)
    }

    #[test]
    fn what_a_drive_holds_is_read_from_odd_fields() {
        let cd = json!(["CD", "DVD"]);
        for (inserted, image, via, holds) in [
            (json!(true), json!(URL), json!("URI"), Holds::Medium),
            (json!(true), json!(null), json!(null), Holds::Medium),
            (json!(null), json!(URL), json!(null), Holds::Medium),
            (json!("yes"), json!(""), json!(null), Holds::Nothing),
            (json!(false), json!(""), json!("URI"), Holds::Nothing),
            (json!(true), json!(URL), json!("NotConnected"), Holds::Nothing),
            (json!(true), json!("local.iso"), json!("Applet"), Holds::Persons),
        ] {
            let resource = json!({ "MediaTypes": cd, "Inserted": inserted, "Image": image, "ConnectedVia": via });
            assert_eq!(slot(resource.clone()).unwrap().holds, holds, "{resource}");
        }
        for (types, device) in [
            (json!(["DVD"]), Some(BootDevice::Cd)),
            (json!(["Floppy", "USBStick"]), Some(BootDevice::Usb)),
            (json!(["Floppy"]), None),
            (json!("CD"), None),
            (json!(null), None),
        ] {
            assert_eq!(slot(json!({ "MediaTypes": types })).map(|slot| slot.device), device, "{types}");
        }
    }

    #[test]
    fn a_medium_is_known_again() {
        let holding = |image: Value| slot(json!({ "MediaTypes": ["CD"], "Inserted": true, "Image": image })).unwrap();
        for (image, has) in [
            (json!(URL), true),
            (json!("landfall.iso"), true),
            (json!("\\\\192.0.2.1\\boot\\landfall.iso"), true),
            (json!("http://192.0.2.9:7480/boot/landfall.iso"), false),
            (json!("other-landfall.iso"), false),
            (json!("b"), false),
        ] {
            assert_eq!(holding(image.clone()).has(URL, Some("/other")), has, "{image}");
        }
        let unnamed = holding(json!(null));
        assert!(unnamed.has(URL, Some("/s")) && !unnamed.has(URL, None) && !unnamed.has(URL, Some("/other")));
        assert!(!slot(json!({ "MediaTypes": ["CD"] })).unwrap().has(URL, Some("/s")), "an empty one holds none");
    }

    #[test]
    fn a_failed_task_says_why() {
        for (task, why) in [
            (json!({"TaskState": "Running", "Messages": [{"Message": "begun"}]}), None),
            (
                json!({"TaskState": "Exception", "Messages": [{"Message": "begun"}, {"Message": "no file"}]}),
                Some("no file"),
            ),
            (json!({"TaskState": "Killed", "Messages": null}), Some("Killed")),
            (json!("gone"), None),
        ] {
            assert_eq!(failure_of(&task).as_deref(), why, "{task}");
        }
    }

    #[test]
    fn a_persons_medium_is_left_in_its_drive() {
        let insert = json!({"#VirtualMedia.InsertMedia": {"target": "/insert"}});
        let drive = |path: &str, types: Value, image: Option<&str>, via: &str| {
            let inserted = image.is_some();
            let mut resource =
                json!({ "MediaTypes": types, "Inserted": inserted, "Image": image, "ConnectedVia": via });
            resource["Actions"] = insert.clone();
            read(path, &resource).unwrap()
        };
        let persons = drive("/persons", json!(["CD"]), Some("b.iso"), "Applet");
        let empty = drive("/empty", json!(["CD"]), None, "NotConnected");
        let other = drive("/other", json!(["CD"]), Some("http://x/b.iso"), "URI");
        let ours = drive("/ours", json!(["CD"]), Some(URL), "URI");
        let stick = drive("/stick", json!(["USBStick"]), None, "NotConnected");
        let without = Slot { insert: None, ..drive("/without", json!(["CD"]), None, "NotConnected") };
        let mut all = vec![persons, without, stick, other, empty, ours];
        for expected in ["/ours", "/empty", "/other", "/without", "/stick"] {
            assert_eq!(choose(all.clone(), URL).unwrap().path, expected);
            all.retain(|slot| slot.path != expected);
        }
        assert_eq!(choose(all, URL), None);
    }
}
