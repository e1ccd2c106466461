//! What counts as a disk image. `magic` is the table of what people publish by mistake, `decide` the one place that
//! accepts or refuses; `docs/images.md` lists both.

mod decide;
mod looks;
mod magic;
#[cfg(test)]
mod tests;

pub(crate) use decide::{Content, Refusal, decide};
pub use magic::Mistake;
pub(crate) use magic::recognise;
