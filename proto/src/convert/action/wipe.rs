//! `wipe`.

use landfall_api::{WipeReport, WipeSpec, message::WipeResult};

use crate::convert::{ConvertError, codec::*, word::*};
use crate::v1;

wire! {
    WipeSpec = v1::Wipe { disks: selectors, level: word, fallback: words }
    WipeResult = v1::WipeResult, checked by some_disk { disks: list }
    // Which workflow it was is not the agent's to say.
    WipeReport = v1::WipeReport, without workflow {
        disk: one, asked: word, level: word, method, started_at: moment, ended_at: moment, samples, limits
    }
}

fn some_disk(wire: &v1::WipeResult) -> Result<(), ConvertError> {
    if wire.disks.is_empty() { Err(ConvertError::missing("disks")) } else { Ok(()) }
}
