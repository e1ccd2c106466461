//! A packet socket names the port that a frame came by, also where that port is in a bond: `PACKET_ORIGDEV` (packet(7)), which neither
//! nix nor rustix nor socket2 has.

#![allow(unsafe_code)] // nix's macro calls setsockopt(2) with a pointer to an int and its size, which is what this option takes.

use nix::{libc, setsockopt_impl, sockopt_impl};

sockopt_impl!(
    /// Otherwise the kernel names the bond.
    OriginalPort,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_ORIGDEV,
    bool
);
