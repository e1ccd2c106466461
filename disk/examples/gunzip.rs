//! Decodes a gzip file with zlib-rs and throws the result away: a contestant of `scripts/bench write`, beside libdeflate
//! and ISA-L, for the stage that decodes.

use std::{env, fs::File, io, process::ExitCode};

use flate2::bufread::MultiGzDecoder;

/// What a person sees.
const USAGE: &str = "usage: gunzip FILE";

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let decoded = File::open(&path).and_then(|file| {
        let mut raw = MultiGzDecoder::new(io::BufReader::with_capacity(1 << 20, file));
        io::copy(&mut raw, &mut io::sink())
    });
    match decoded {
        Ok(bytes) => {
            println!("{bytes} bytes");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{} cannot be decoded: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
