//! Secrets at rest: each value encrypted and authenticated under its own name, with a key in a file of the data directory.
//!
//! The key keeps a copied database, or a lost disk of backups made by other means, from being a list of passwords. It does
//! not keep anything from a user who may read the data directory. ChaCha20-Poly1305 with a random nonce: no counter that a
//! restored database could repeat, and no two of 2^32 values are likely to share one.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::open_error::OpenError;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The key's file in the data directory, mode 0600.
pub const KEY_FILE: &str = "secrets.key";
/// First word of the key's file; the key follows in hex.
const KEY_TAG: &str = "landfall-secrets-key-1";
/// First byte of a sealed value: how it is sealed.
const SEALED_1: u8 = 1;
/// What the key has sealed in the database, to tell another key from a damaged value.
const PROOF: &str = "this key";

/// Seals and opens.
pub(super) struct Sealer(LessSafeKey);

impl Sealer {
    /// Opens the key in `data_dir` of the database that holds this proof of it. Where it holds none, no value was ever sealed
    /// there: the key is made if there is none, and the database is to keep the proof that is answered.
    pub(super) fn open(data_dir: &Path, proof: Option<Vec<u8>>) -> Result<(Self, Option<Vec<u8>>), OpenError> {
        let path = data_dir.join(KEY_FILE);
        let unusable = |what: &'static str| OpenError::Key { path: path.clone(), what };
        let sealer = match read_key(&path)? {
            Some(text) => {
                let key = text.trim_end().strip_prefix(KEY_TAG).and_then(|hex| hex::decode(hex.trim_start()).ok());
                let key = key.and_then(|key| UnboundKey::new(&CHACHA20_POLY1305, &key).ok());
                Self(LessSafeKey::new(key.ok_or_else(|| unusable("it does not contain a key"))?))
            }
            None if proof.is_some() => return Err(unusable("it is missing")),
            None => Self::create(data_dir, &path)?,
        };
        match proof {
            Some(proof) if sealer.unseal(PROOF, &proof).is_none() => {
                Err(unusable("it is another database's key: the secrets here were sealed with a different one"))
            }
            Some(_) => Ok((sealer, None)),
            None => {
                let proof = sealer.seal(PROOF, b"").map_err(|_| unusable("the system gave no random numbers"))?;
                Ok((sealer, Some(proof)))
            }
        }
    }

    fn create(data_dir: &Path, path: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let random = |_| OpenError::Key { path: path.to_owned(), what: "the system gave no random numbers" };
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).map_err(random)?;
        let unready = data_dir.join("secrets.key.new");
        match std::fs::remove_file(&unready) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unready).map_err(io)?;
        file.write_all(format!("{KEY_TAG} {}\n", hex::encode(key)).as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&unready, path))
            // On the disk before anything is sealed with it.
            .and_then(|()| File::open(data_dir)?.sync_all())
            .map_err(io)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(random)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// The value, sealed under its name.
    pub(super) fn seal(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| StoreError::NoRandom)?;
        let mut sealed = value.to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut sealed)
            .map_err(|_| StoreError::Sealed { name: name.to_owned() })?;
        let mut out = Vec::with_capacity(1 + NONCE_LEN + sealed.len());
        out.push(SEALED_1);
        out.extend_from_slice(&nonce);
        out.append(&mut sealed);
        Ok(out)
    }

    /// The same of what was found under this name, if anything.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] if this is not it.
    pub(super) fn unseal_found(&self, name: &str, sealed: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sealed) = sealed else { return Ok(None) };
        let value = self.unseal(name, &sealed);
        value.map(Some).ok_or_else(|| StoreError::Sealed { name: name.to_owned() })
    }

    /// The value that was sealed under this name; `None` if this is not it.
    pub(super) fn unseal(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, content) = sealed.strip_prefix(&[SEALED_1])?.split_at_checked(NONCE_LEN)?;
        let mut content = content.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let bytes = self.0.open_in_place(nonce, Aad::from(name), &mut content).ok()?.len();
        content.truncate(bytes);
        Some(content)
    }
}

fn read_key(path: &PathBuf) -> Result<Option<String>, OpenError> {
    let io = |source| OpenError::Io { path: path.clone(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if file.metadata().map_err(io)?.mode() & 0o077 != 0 {
        let what = "other users may read it; set its mode to 0600, and consider the secrets that it protects as known";
        return Err(OpenError::Key { path: path.clone(), what });
    }
    let mut text = String::new();
    // A key's file has 88 bytes.
    file.take(4096).read_to_string(&mut text).map_err(io)?;
    Ok(Some(text))
}
