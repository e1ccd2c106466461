//! Unpacks one archive into a directory, as the action does it: fetched, proven, stored and decompressed.
//! `scripts/bench actions` measures it.
//!
//! usage: unpack URL DIGEST DIRECTORY

use std::{env, error::Error, io, path::Path};

use landfall_api::{ImageAccess, Unpack, UnpackSource, message::ActionResult};
use landfall_worker::{Reporter, unpack};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, digest, directory] = arguments.as_slice() else {
        return Err("usage: unpack URL DIGEST DIRECTORY".into());
    };
    let source = UnpackSource::Archive { url: url.clone(), digest: digest.parse()? };
    let spec = Unpack { source, access: ImageAccess::default(), path: "/".into(), disk: None };
    match unpack(Path::new(directory), &[], &spec, &Reporter::new(io::sink())) {
        Ok(ActionResult::Unpack(done)) => println!("{} entries, {} bytes", done.entries, done.bytes),
        Ok(other) => return Err(format!("another action was performed: {other:?}").into()),
        Err(failure) => return Err(failure.problem.to_string().into()),
    }
    Ok(())
}
