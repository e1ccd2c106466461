//! Accounts in a BMC that is a table.

use std::cell::RefCell;

use landfall_api::SecretText;

use super::*;

/// A user: its name, its password, its access with the privilege, and whether it is enabled.
#[derive(Debug, Clone, Default, PartialEq)]
struct User {
    name: String,
    password: Vec<u8>,
    access: u8,
    enabled: bool,
}

/// A BMC whose LAN port is channel 1, and what it does otherwise than others.
#[derive(Clone)]
struct Bmc {
    /// From user 1 on.
    users: Vec<User>,
    fixed: u8,
    has_lan: bool,
    /// Passwords in 16 bytes alone.
    short: bool,
    /// The highest privilege that it gives.
    most: u8,
    /// It takes passwords, and keeps another one.
    forgets: bool,
    /// The answer to the question for the name of a user without one.
    unnamed: Answer,
}

fn user(name: &str) -> User {
    User { name: name.into(), password: vec![b'x'; 16], access: 4 | MESSAGES, enabled: true }
}

/// With these users from number 2 on.
fn bmc(users: &[User]) -> Bmc {
    let users = [&[User::default()], users].concat();
    Bmc { users, fixed: 1, has_lan: true, short: false, most: 4, forgets: false, unnamed: Ok(vec![0; 16]) }
}

impl Bmc {
    fn at(&mut self, number: u8) -> Result<&mut User, u8> {
        self.users.get_mut(usize::from(number & 0x3f) - 1).ok_or(0xcb)
    }

    fn answer(&mut self, command: Command, data: &[u8]) -> Answer {
        let count = self.users.len() as u8;
        let (unnamed, short, most, forgets) = (self.unnamed.clone(), self.short, self.most, self.forgets);
        match (command, data) {
            (Command(0x06, 0x01), []) => Ok(vec![0; 15]),
            (Command(0x06, 0x42), &[channel]) => {
                if self.has_lan && channel == 1 {
                    Ok(vec![1, 4, 1])
                } else {
                    Err(0xcc)
                }
            }
            (Command(0x0c, 0x02), [1, 3, 0, 0]) => Ok(vec![0x11, 192, 0, 2, 9]),
            (Command(0x0c, 0x02), _) => Err(0x80),
            (GET_USER_ACCESS, &[1, number]) => {
                let User { access, enabled, .. } = *self.at(number)?;
                Ok(vec![count, if enabled { 0x40 } else { 0x80 }, self.fixed, access])
            }
            (GET_USER_NAME, &[number]) => match &self.at(number)?.name {
                name if name.is_empty() => unnamed,
                name => Ok(padded::<16>(name).to_vec()),
            },
            (SET_USER_NAME, [number, name @ ..]) if name.len() == 16 => {
                let text = name.split(|byte| *byte == 0).next().unwrap();
                self.at(*number)?.name = String::from_utf8(text.to_vec()).unwrap();
                Ok(Vec::new())
            }
            (SET_USER_ACCESS, &[access, number, NO_ACCESS]) => {
                assert!(access & 0xf0 == NOTHING && access != 0x81, "other channels alone");
                self.at(number).map(|_| Vec::new())
            }
            (SET_USER_PASSWORD, &[number, DISABLE]) => {
                let user = self.at(number)?;
                assert!(user.name.is_empty(), "no account of another is disabled");
                user.enabled = false;
                Ok(Vec::new())
            }
            (SET_USER_ACCESS, &[access, number, privilege]) => {
                assert_eq!(access, 0xb1, "channel 1, link authentication and messages");
                if privilege > most {
                    return Err(0xcc);
                }
                self.at(number)?.access = privilege | MESSAGES;
                Ok(Vec::new())
            }
            (SET_USER_PASSWORD, &[number, ENABLE]) => {
                self.at(number)?.enabled = true;
                Ok(Vec::new())
            }
            (SET_USER_PASSWORD, [number, operation, password @ ..]) => {
                let long = number & IN_20_BYTES != 0;
                assert_eq!(password.len(), if long { 20 } else { 16 });
                match *operation {
                    _ if long && short => Err(0xc7),
                    SET => {
                        self.at(*number)?.password = if forgets { Vec::new() } else { password.to_vec() };
                        Ok(Vec::new())
                    }
                    TEST if self.at(*number)?.password == password => Ok(Vec::new()),
                    _ => Err(0x80),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sets the account, twice where it succeeds: the second time is to change nothing.
    fn set(self, password: &str, privilege: BmcPrivilege) -> (Result<u8, String>, Vec<User>) {
        let account = BmcAccount { username: "landfall".into(), password: SecretText::new(password), privilege };
        let state = RefCell::new(self);
        let ask = |command, data: &[u8]| Ok(state.borrow_mut().answer(command, data));
        let first = set_by(&ask, &account).map(|set| set.user).map_err(|error| error.to_string());
        let users = state.borrow().users.clone();
        if let Ok(user) = first {
            assert_eq!(set_by(&ask, &account).unwrap().user, user);
            assert_eq!(state.borrow().users, users, "it was there already");
        }
        (first, users)
    }
}

const LONG: &str = "twenty-bytes-of-text";
const SHORT: &str = "sixteen-of-text-";

#[test]
fn the_account_takes_its_own_place_or_a_free_one() {
    let (free, other) = (User::default(), user("admin"));
    let disabled = User { enabled: false, access: CALLBACK_ONLY, ..user("landfall") };
    for (users, expected) in [
        (vec![free.clone(), free.clone()], 2),
        (vec![other.clone(), free.clone()], 3),
        (vec![free.clone(), other.clone(), user("landfall")], 4),
        (vec![other.clone(), disabled], 3),
    ] {
        for password in [LONG, SHORT] {
            let (set, after) = bmc(&users).set(password, BmcPrivilege::Operator);
            assert_eq!(set, Ok(expected));
            // One that may do more keeps that.
            let had = users.iter().find(|user| user.name == "landfall").map_or(0, |user| user.access & LIMIT);
            let wanted = User {
                name: "landfall".into(),
                password: padded::<20>(password).to_vec(),
                access: had.max(3) | MESSAGES,
                enabled: true,
            };
            for (number, (before, after)) in (2..).zip(users.iter().zip(&after[1..])) {
                assert_eq!(after, if number == expected { &wanted } else { before }, "user {number}");
            }
            assert_eq!(after[0], User::default(), "user 1 is never touched");
        }
    }
}

#[test]
fn fixed_and_unanswered_names_are_no_free_place() {
    let free = [User::default(), User::default()];
    let fixed = Bmc { fixed: 2, ..bmc(&free) };
    assert_eq!(fixed.set(SHORT, BmcPrivilege::Operator).0, Ok(3));
    let by_code = Bmc { unnamed: Err(NO_NAME), ..bmc(&free) };
    assert_eq!(by_code.set(SHORT, BmcPrivilege::Operator).0, Ok(2));
    let silent = Bmc { unnamed: Err(0xd5), ..bmc(&free) };
    assert!(silent.set(SHORT, BmcPrivilege::Operator).0.unwrap_err().starts_with("all 3 users"));
}

#[test]
fn a_password_takes_16_bytes_where_20_are_refused() {
    let old = Bmc { short: true, ..bmc(&[User::default()]) };
    let (set, users) = old.clone().set(SHORT, BmcPrivilege::Administrator);
    assert_eq!((set, users[1].password.as_slice(), users[1].access & 0x0f), (Ok(2), SHORT.as_bytes(), 4));
    let refused = old.set(LONG, BmcPrivilege::Operator).0.unwrap_err();
    assert!(refused.contains("does not fit in 16") && !refused.contains(LONG), "{refused}");
}

#[test]
fn what_stands_in_the_way_is_said() {
    let free = [User::default()];
    for (bmc, expected) in [
        (bmc(&[user("a"), user("b")]), "all 3 users of the BMC have another name, or one that cannot be changed"),
        (
            Bmc { most: 2, ..bmc(&free) },
            "the BMC does not give its user 2 the privilege operator on channel 1: it does not allow a value in it \
             (completion code 0xcc)",
        ),
        (Bmc { has_lan: false, ..bmc(&free) }, "no LAN port of the BMC has an address"),
        (
            Bmc { forgets: true, ..bmc(&free) },
            "the BMC does not confirm the password of its user 2: it has another password (completion code 0x80)",
        ),
    ] {
        assert_eq!(bmc.set(SHORT, BmcPrivilege::Operator).0.unwrap_err(), expected);
    }
    let no_answer = |_, _: &[u8]| Err(io::ErrorKind::TimedOut.into());
    assert!(matches!(set_by(&no_answer, &BmcAccount::default()), Err(AccountError::Silent(_))));
}
