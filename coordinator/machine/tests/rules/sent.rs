//! What an agent is sent where a person has to decide first.

use landfall_machine::Tell;

use super::Story;
use super::happens::Happens;
use super::happens::Happens::*;
use super::site::Word;

/// What the newest session was sent in such a story.
fn sent(happens: impl IntoIterator<Item = Happens>) -> Vec<Word> {
    let mut story = Story::new();
    story.over(happens.into_iter().collect()).unwrap();
    story.site.line.unwrap().1.into_iter().collect()
}

fn idle(words: &[Word]) -> Vec<bool> {
    let idle = |word: &Word| match word {
        Word::Tell(Tell::Idle { boot_disk, .. }) => Some(*boot_disk),
        _ => None,
    };
    assert!(!words.iter().any(|word| matches!(word, Word::Assign { .. })), "{words:?}");
    words.iter().filter_map(idle).collect()
}

#[test]
fn a_held_machine_boots_its_disk_if_that_can_boot() {
    let begins = [Copies, Connects(0), Hears(0), Works(0), Works(0)];
    let back = [Passes(60), Restores(false), Connects(0)];
    assert_eq!(idle(&sent(begins.clone().into_iter().chain(back.clone()))), [false], "its write had begun");
    assert_eq!(idle(&sent(begins.into_iter().chain([Works(0)]).chain(back))), [true]);
}

#[test]
fn a_held_machine_is_given_nothing_of_what_had_begun() {
    let begins = [Connects(0), Hears(0), Works(0), Copies, Works(0), Restarts(0)];
    let back = [Restores(false), Passes(60), Connects(0), Ticks];
    assert_eq!(idle(&sent(begins.into_iter().chain(back))), [false]);
}
