//! Boot loader entries and the order of their versions. Input: GRUB's environment block and three entries, each ended by a zero
//! byte.
#![no_main]

use std::cmp::Ordering;

use landfall_agent_fuzz::{compare, entries, parts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [block, a, b, c] = parts(data);
    let (kernels, line) = entries(&block, &[("a.conf", &a), ("b.conf", &b), ("c.conf", &c)]);
    assert!(kernels.len() <= 6 && kernels.chunks(2).all(|two| two[0].starts_with("/boot/")));
    assert!(!line.contains('\n'), "{line:?}");
    // An order, or sorting by it may panic.
    let of = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let [a, b, c] = [of(&a), of(&b), of(&c)];
    assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
    assert_eq!(compare(&a, &a), Ordering::Equal);
    if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
        assert!(compare(&a, &c).is_le(), "{a:?} <= {b:?} <= {c:?}");
    }
});
