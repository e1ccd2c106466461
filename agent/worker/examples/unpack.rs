//! Unpacks one archive into a directory, as the action does it: fetched, hashed and decompressed on threads of their own.
//! `scripts/bench actions` measures it.
//!
//! usage: unpack URL DIGEST DIRECTORY

use std::{env, error::Error, path::Path};

use landfall_disk::{Access, ContentOrder, Image, Proof, Unobserved, open_source, with_content};
use landfall_unpack::{Limits, Manner, Unpacker};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, digest, directory] = arguments.as_slice() else {
        return Err("usage: unpack URL DIGEST DIRECTORY".into());
    };
    let digest = digest.parse()?;
    let image = Image {
        urls: vec![url.clone()],
        proof: Proof::Stored(digest),
        format: None,
        no_table: false,
        access: Access::default(),
    };
    let mut source = open_source(&image, true, &Unobserved)?;
    let order = ContentOrder { digest, memory: None, observer: &Unobserved, may_act: &|| Ok(()) };
    let tally = with_content(source.as_mut(), order, |content| {
        let mut unpacker = Unpacker::new(Path::new(directory), Limits::default(), &|| true)?;
        unpacker.archive(content, Manner::Archive)?;
        unpacker.finish()
    })??;
    println!("{} entries, {} bytes", tally.entries, tally.bytes);
    Ok(())
}
