//! Who runs in a container: `user` or `user:group`, by the image's own passwd and group. Pure.

use super::plan::Who;

/// Who it is, and the home directory that passwd states.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) who: Who,
    pub(super) home: Option<String>,
}

/// Looks `wanted` up as `docker run` does: a name must be known; a number need not be. Without a group it has the account's own and
/// those that list it.
///
/// # Errors
/// A clause that says what is unknown.
pub(super) fn find(wanted: &str, passwd: &str, group: &str) -> Result<Found, String> {
    let (user, stated) = wanted.split_once(':').map_or((wanted, None), |(user, group)| (user, Some(group)));
    let accounts = || passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|fields| fields.len() >= 6);
    let by_name = accounts().find(|fields| fields[0] == user);
    let account = by_name.or_else(|| accounts().find(|fields| is_number(user) && fields[2] == user));
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number != u32::MAX);
    let unknown = || format!("the image has no user {user}");
    let uid = account.as_ref().map_or(user, |fields| fields[2]);
    let uid = number(uid).ok_or_else(unknown)?;
    let name = account.as_ref().map(|fields| fields[0]);
    let lines = || group.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|fields| fields.len() >= 4);
    let gid = match stated {
        Some(stated) => {
            let known = lines().find(|fields| fields[0] == stated).map_or(stated, |fields| fields[2]);
            number(known).ok_or_else(|| format!("the image has no group {stated}"))?
        }
        None => account.as_ref().and_then(|fields| number(fields[3])).unwrap_or(0),
    };
    let lists = |fields: &[&str]| name.is_some_and(|name| fields[3].split(',').any(|member| member == name));
    let mut groups: Vec<u32> = match stated {
        Some(_) => Vec::new(),
        None => lines().filter(|fields| lists(fields)).filter_map(|fields| number(fields[2])).collect(),
    };
    groups.retain(|other| *other != gid);
    let home = account.as_ref().map(|fields| fields[5].to_owned()).filter(|home| home.starts_with('/'));
    Ok(Found { who: Who { user: uid, group: gid, groups }, home })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1001:,,,:/home/anna:/bin/sh\nbroken\n42:x:7:7::/:/x\n";
    const GROUP: &str = "root:x:0:\nanna:x:1001:\ndisk:x:6:anna,bob\nadm:x:4:bob\n";

    fn ids(wanted: &str) -> (u32, u32, Vec<u32>) {
        let Who { user, group, groups } = find(wanted, PASSWD, GROUP).unwrap().who;
        (user, group, groups)
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        assert_eq!(ids("anna"), (1000, 1001, vec![6]));
        assert_eq!(ids("1000"), (1000, 1001, vec![6]));
        assert_eq!(ids("anna:adm"), (1000, 4, vec![]));
        assert_eq!(ids("5:6"), (5, 6, vec![]));
        assert_eq!(ids("5"), (5, 0, vec![]));
        assert_eq!(ids("42"), (7, 7, vec![]), "a name of digits is a name");
        assert_eq!(find("anna", PASSWD, GROUP).unwrap().home.as_deref(), Some("/home/anna"));
    }

    #[test]
    fn what_the_image_does_not_know_is_refused() {
        assert_eq!(find("bob", PASSWD, GROUP).unwrap_err(), "the image has no user bob");
        assert_eq!(find("anna:none", PASSWD, GROUP).unwrap_err(), "the image has no group none");
        // (uid_t) -1 means "leave it as it is" to the kernel.
        for user in ["4294967295", "4294967296", "", "anna:", "-1"] {
            assert!(find(user, PASSWD, GROUP).is_err(), "{user}");
        }
    }
}
