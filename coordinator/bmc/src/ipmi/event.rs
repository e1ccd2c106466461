//! What an event of a sensor means (IPMI 2.0, tables 42-2 and 42-3), as far as it is a fault that keeps a computer from starting. Pure.

/// A sensor's type, with its faults: the event's offset, and what it means.
type Faults = (u8, &'static str, &'static [(u8, &'static str)]);

/// Events of their sensors' own types (table 42-3).
const OF_TYPES: [Faults; 9] = [
    (
        0x07,
        "Processor",
        &[
            (0, "IERR"),
            (1, "thermal trip"),
            (2, "self-test failed"),
            (3, "hang in POST"),
            (4, "it did not start"),
            (5, "configuration error"),
            (6, "uncorrectable error"),
            (8, "it is disabled"),
            (11, "uncorrectable machine check"),
        ],
    ),
    (
        0x08,
        "Power supply",
        &[
            (1, "failure"),
            (2, "failure is predicted"),
            (3, "no input"),
            (4, "input out of range"),
            (6, "configuration error"),
        ],
    ),
    (
        0x0c,
        "Memory",
        &[
            (1, "uncorrectable ECC error"),
            (2, "parity error"),
            (3, "scrub failed"),
            (4, "device is disabled"),
            (5, "too many correctable errors"),
            (7, "configuration error"),
        ],
    ),
    (0x0d, "Drive slot", &[(1, "drive fault")]),
    (0x0f, "System firmware", &[(0, "error"), (1, "hang")]),
    (
        0x13,
        "Critical interrupt",
        &[
            (1, "bus timeout"),
            (4, "PCI PERR"),
            (5, "PCI SERR"),
            (8, "uncorrectable bus error"),
            (10, "fatal bus error"),
        ],
    ),
    (
        0x1e,
        "Boot",
        &[
            (0, "no bootable medium"),
            (1, "a medium that is not bootable"),
            (2, "no PXE server"),
            (3, "invalid boot sector"),
            (4, "no choice of a boot device in time"),
        ],
    ),
    (0x21, "Slot or connector", &[(0, "fault")]),
    (0x23, "Watchdog", &[(0, "it expired"), (1, "hard reset"), (2, "power down"), (3, "power cycle")]),
];

/// Events of thresholds (table 42-2, 01h).
const OF_THRESHOLDS: [(u8, &str); 4] = [
    (2, "below its critical limit"),
    (4, "far below its limits"),
    (9, "above its critical limit"),
    (11, "far above its limits"),
];

/// Sensors with thresholds that keep a computer from starting.
const MEASURED: [(u8, &str); 4] = [(0x01, "Temperature"), (0x02, "Voltage"), (0x03, "Current"), (0x04, "Fan")];

/// What an error of the firmware is (sensor type 0fh, offset 0), from its second byte.
const FIRMWARE_ERRORS: [&str; 14] = [
    "error", "no memory is installed", "no usable memory", "unrecoverable disk failure",
    "unrecoverable system board failure", "unrecoverable diskette failure", "unrecoverable disk controller failure",
    "unrecoverable keyboard failure", "boot medium not found", "unrecoverable video controller failure",
    "no video device", "firmware ROM is corrupt", "processors' voltages differ", "processors' speeds differ",
];

/// An event's first byte has an explanation of the second (29.7): bits 7:6 are 11b.
const EXPLAINED: u8 = 0xc0;

/// A sensor's fault, for people; nothing of an event that is none, or is over, or that only the maker's manual explains.
pub(super) fn describe(sensor: u8, number: u8, event: u8, [data1, data2]: [u8; 2]) -> Option<String> {
    let (is_over, kind, offset) = (event & 0x80 != 0, event & 0x7f, data1 & 0x0f);
    let find = |all: &[(u8, &'static str)]| all.iter().find(|(known, _)| *known == offset).map(|(_, what)| *what);
    let (name, what) = match kind {
        _ if is_over => return None,
        0x01 => (MEASURED.iter().find(|(known, _)| *known == sensor)?.1, find(&OF_THRESHOLDS)?),
        0x6f => {
            let (_, name, faults) = OF_TYPES.iter().find(|(known, ..)| *known == sensor)?;
            let error = FIRMWARE_ERRORS.get(usize::from(data2)).filter(|_| data1 & EXPLAINED == EXPLAINED);
            let what = find(faults)?;
            (*name, error.filter(|_| (sensor, offset) == (0x0f, 0)).copied().unwrap_or(what))
        }
        _ => return None,
    };
    Some(format!("{name}, sensor {number:#04x}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_and_the_rest_is_left_out() {
        for (sensor, event, data, said) in [
            (0x0c, 0x6f, [0xa1, 0xff], Some("Memory, sensor 0x30: uncorrectable ECC error")),
            (0x0f, 0x6f, [0xc0, 0x01], Some("System firmware, sensor 0x30: no memory is installed")),
            (0x0f, 0x6f, [0xc0, 0x7f], Some("System firmware, sensor 0x30: error")),
            // The second byte is the maker's own.
            (0x0f, 0x6f, [0x80, 0x01], Some("System firmware, sensor 0x30: error")),
            (0x0f, 0x6f, [0xc1, 0x01], Some("System firmware, sensor 0x30: hang")),
            (0x1e, 0x6f, [0x02, 0xff], Some("Boot, sensor 0x30: no PXE server")),
            (0x01, 0x01, [0x59, 0x50], Some("Temperature, sensor 0x30: above its critical limit")),
            // Presence; below a limit that is no fault; over; a type of the maker's; a type that says nothing of a start.
            (0x08, 0x6f, [0x00, 0xff], None),
            (0x01, 0x01, [0x57, 0x50], None),
            (0x0c, 0xef, [0xa1, 0xff], None),
            (0x0c, 0x72, [0xa1, 0xff], None),
            (0xc0, 0x6f, [0x01, 0xff], None),
            (0x12, 0x6f, [0x01, 0xff], None),
        ] {
            assert_eq!(describe(sensor, 0x30, event, data).as_deref(), said, "{sensor:#x} {event:#x} {data:x?}");
        }
    }
}
