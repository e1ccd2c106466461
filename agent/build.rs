//! Link arguments of the agent alone.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A static position-independent program relocates itself; packed (DT_RELR; binutils 2.38, glibc 2.36), that table
    // takes a thirtieth of the room.
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
