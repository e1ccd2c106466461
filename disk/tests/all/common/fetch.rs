//! Images that are fetched, for the tests of sources.

use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use landfall_api::{DiskReceipt, Progress};
use landfall_disk::{Image, ImageSource, LogLevel, Observer, Proof, WriteError, open_source};

use super::noise;

pub(crate) static RUN: AtomicBool = AtomicBool::new(false);

/// What was logged.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) Mutex<Vec<String>>);

impl Observer for Lines {
    fn progress(&self, _: &Progress) {}
    fn receipt_written(&self, _: &DiskReceipt) {}
    fn log(&self, _: LogLevel, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

impl Lines {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

pub(crate) fn image_at(urls: &[&str]) -> Image {
    Image { urls: urls.iter().map(|url| (*url).to_owned()).collect(), ..landfall_disk::image_at("", Proof::Waived) }
}

pub(crate) fn read_on(source: &mut dyn ImageSource) -> Result<Vec<u8>, WriteError> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 100_000]);
    loop {
        match source.read(&mut piece, &RUN)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}

pub(crate) fn fetch(image: &Image, digest_guards: bool, observer: &Lines) -> Result<Vec<u8>, WriteError> {
    read_on(&mut *open_source(image, digest_guards, observer)?)
}

pub(crate) fn content() -> Vec<u8> {
    noise(3_000_000, 5)
}

/// A URL where no server listens.
pub(crate) fn dead() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    format!("http://{}/image", listener.local_addr().unwrap())
}
