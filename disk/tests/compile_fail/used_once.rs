use landfall_disk::{BlockDevice, Verified, place_backup};

fn commits_twice(device: &dyn BlockDevice, verified: Verified) {
    let _ = place_backup(device, "disk", verified);
    let _ = place_backup(device, "disk", verified);
}

fn main() {}
