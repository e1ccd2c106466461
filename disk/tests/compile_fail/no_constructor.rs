use landfall_disk::Verified;

fn main() {
    let _verified = Verified::new();
    let _again = Verified::default();
}
