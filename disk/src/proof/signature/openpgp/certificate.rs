//! A key as it is published: the primary key, its names, its subkeys, and what it says of each. Only its own signatures
//! count, and any signature that restricts its use is obeyed.

use super::key::Key;
use super::packet;
use super::packet::Tag;
use super::statement::{
    CERTIFICATIONS, DIRECT, KEY_REVOCATION, MAY_SIGN, PRIMARY_BINDING, SUBKEY_BINDING, SUBKEY_REVOCATION, Statement,
};

/// One primary key and all that belongs to it.
#[derive(Debug)]
pub(super) struct Certificate {
    primary: Key,
    /// The newest of its own words about itself that hold.
    own: Option<Statement>,
    /// Why words of its own about itself do not count.
    why_not: Option<String>,
    revoked: bool,
    subkeys: Vec<Subkey>,
}

#[derive(Debug)]
struct Subkey {
    key: Key,
    /// The newest binding that holds on both sides.
    binding: Option<Statement>,
    revoked: bool,
}

/// What the signatures that follow are about.
enum About {
    Primary,
    Name(Vec<u8>),
    Subkey,
    /// Something that cannot sign, or is of no kind we know.
    Nothing,
}

impl Certificate {
    /// All of them, in binary.
    ///
    /// # Errors
    /// A clause after "the key given …".
    pub(super) fn read_all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        let mut all: Vec<Self> = Vec::new();
        let mut about = About::Nothing;
        for packet in packet::split(bytes)? {
            match (packet.tag, all.last_mut()) {
                (Tag::PublicKey, _) => {
                    let primary = Key::read(packet.body)?;
                    all.push(Self { primary, own: None, why_not: None, revoked: false, subkeys: Vec::new() });
                    about = About::Primary;
                }
                (_, None) => return Err("does not begin with a public key".into()),
                (Tag::UserId, Some(_)) => about = About::Name(packet.body.to_vec()),
                (Tag::PublicSubkey, Some(certificate)) => {
                    // Most subkeys are for encryption, of algorithms that cannot sign.
                    about = match Key::read(packet.body) {
                        Ok(key) => {
                            certificate.subkeys.push(Subkey { key, binding: None, revoked: false });
                            About::Subkey
                        }
                        Err(_) => About::Nothing,
                    };
                }
                (Tag::Signature, Some(certificate)) => certificate.hear(&about, packet.body),
                (Tag::Other, Some(_)) => about = About::Nothing,
            }
        }
        if all.is_empty() { Err("holds no public key".into()) } else { Ok(all) }
    }

    /// Takes in a signature about a part of it.
    fn hear(&mut self, about: &About, body: &[u8]) {
        // Second octet: the type. A revocation counts even if it cannot be checked; the person who states the key can
        // remove it.
        match (about, body.get(1)) {
            (_, None) => return,
            // Whatever stands before it: a revocation appended to a key file follows its last subkey.
            (_, Some(&KEY_REVOCATION)) => {
                self.revoked = true;
                return;
            }
            (About::Nothing, _) => return,
            (About::Subkey, Some(&SUBKEY_REVOCATION)) => {
                if let Some(subkey) = self.subkeys.last_mut() {
                    subkey.revoked = true;
                }
                return;
            }
            _ => {}
        }
        let statement = match Statement::read(body) {
            Ok(statement) => statement,
            Err(why) => {
                self.why_not = Some(why);
                return;
            }
        };
        // Others' words about it are of no interest.
        if statement.issuer.is_some_and(|issuer| issuer != self.primary.id()) {
            return;
        }
        let (prefix, primary) = (self.primary.prefix(), &self.primary);
        match about {
            About::Primary if statement.kind == DIRECT => {
                let holds = statement.check(primary, &[&prefix, &primary.body]);
                self.believe(statement, holds);
            }
            About::Name(name) if CERTIFICATIONS.contains(&statement.kind) => {
                let length = u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes();
                let holds = statement.check(primary, &[&prefix, &primary.body, &[0xb4], &length, name]);
                self.believe(statement, holds);
            }
            About::Subkey if statement.kind == SUBKEY_BINDING => {
                let Some(subkey) = self.subkeys.last_mut() else { return };
                let document: [&[u8]; 4] = [&prefix, &primary.body, &subkey.key.prefix(), &subkey.key.body];
                let newer = subkey.binding.as_ref().is_none_or(|old| old.created <= statement.created);
                if newer && statement.check(primary, &document).is_ok() && consents(&subkey.key, &statement, &document)
                {
                    subkey.binding = Some(statement);
                }
            }
            _ => {}
        }
    }

    fn believe(&mut self, statement: Statement, holds: Result<(), String>) {
        match holds {
            Ok(()) if self.own.as_ref().is_none_or(|old| old.created <= statement.created) => {
                self.own = Some(statement)
            }
            Ok(()) => {}
            Err(why) => self.why_not = Some(why),
        }
    }

    /// Its key with this id.
    pub(super) fn find(&self, id: u64) -> Option<&Key> {
        let mut keys = std::iter::once(&self.primary).chain(self.subkeys.iter().map(|subkey| &subkey.key));
        keys.find(|key| key.id() == id)
    }

    /// Whether `key`, one of its own, may have made this signature.
    ///
    /// # Errors
    /// Why not: a clause.
    pub(super) fn may_sign(&self, key: &Key, signature: &Statement, now: u64) -> Result<(), String> {
        if self.revoked {
            return Err("the key given has been revoked".into());
        }
        let why = self.why_not.as_deref().unwrap_or("there is none");
        let own =
            self.own.as_ref().ok_or_else(|| format!("the key given has no signature of its own that counts: {why}"))?;
        let mut parts = vec![(&self.primary, own)];
        if *key != self.primary {
            let subkey = self.subkeys.iter().find(|subkey| subkey.key == *key).ok_or("the subkey is not known")?;
            if subkey.revoked {
                return Err("the subkey that made it has been revoked".into());
            }
            let binding = subkey.binding.as_ref().ok_or("the subkey that made it is not bound to the key given")?;
            parts.push((key, binding));
        }
        for (part, words) in &parts {
            let lifetime = words.key_lifetime.filter(|lifetime| *lifetime > 0);
            let ended =
                lifetime.map(|lifetime| u64::from(part.created) + u64::from(lifetime)).filter(|end| *end <= now);
            if ended.or(words.expires().filter(|end| *end <= now)).is_some() {
                return Err("the key that made it has expired; give the key as it is published now".into());
            }
            if signature.created < part.created {
                return Err("it is older than the key that made it".into());
            }
        }
        match parts.last().and_then(|(_, words)| words.key_flags) {
            // A primary key that does not say what it is for may sign; a subkey must say so.
            Some(flags) if flags & MAY_SIGN != 0 => Ok(()),
            None if parts.len() == 1 => Ok(()),
            _ => Err("the key that made it is not for signing".into()),
        }
    }
}

/// The subkey's own signature inside its binding: without it, any key could claim another key's subkey. Only signing
/// ones have it.
fn consents(subkey: &Key, binding: &Statement, document: &[&[u8]]) -> bool {
    let consent = binding.embedded.as_deref().and_then(|body| Statement::read(body).ok());
    consent.is_some_and(|consent| consent.kind == PRIMARY_BINDING && consent.check(subkey, document).is_ok())
}
