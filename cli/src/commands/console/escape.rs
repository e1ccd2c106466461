//! What is typed at a console, and what is meant for this command: `~` at the beginning of a line, as in ssh. Pure.

/// What a person typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// Characters for the machine.
    Characters(Vec<u8>),
    /// A break for the machine.
    Break,
    /// The console is to end.
    End,
    /// The keys are to be listed.
    Help,
}

/// What `~?` shows.
pub(super) const HELP: &[&str] =
    &["After Enter:", "  ~.  end the console", "  ~B  send a break", "  ~~  send ~", "  ~?  show this"];

/// The line so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Nothing was typed in it.
    #[default]
    Start,
    /// `~` alone, which is held back.
    Tilde,
    /// Behind its beginning.
    Within,
}

/// Tells one from the other, over as many pieces as the keys come in.
#[derive(Debug, Default)]
pub(super) struct Escape(Place);

impl Escape {
    /// What was typed, in order. Nothing behind the end counts.
    pub(super) fn read(&mut self, keys: &[u8]) -> Vec<Typed> {
        let mut out = Vec::new();
        let mut characters = Vec::new();
        for key in keys {
            let command = match (self.0, key) {
                (Place::Start, b'~') => {
                    self.0 = Place::Tilde;
                    continue;
                }
                (Place::Tilde, b'.') => Some(Typed::End),
                (Place::Tilde, b'B') => Some(Typed::Break),
                (Place::Tilde, b'?') => Some(Typed::Help),
                (Place::Tilde, b'~') => {
                    characters.push(b'~');
                    self.0 = Place::Within;
                    continue;
                }
                _ => None,
            };
            if let Some(command) = command {
                if !characters.is_empty() {
                    out.push(Typed::Characters(std::mem::take(&mut characters)));
                }
                let ends = command == Typed::End;
                out.push(command);
                // As in ssh the next one may follow at once.
                self.0 = Place::Start;
                if ends {
                    return out;
                }
                continue;
            }
            if self.0 == Place::Tilde {
                characters.push(b'~');
            }
            characters.push(*key);
            self.0 = if matches!(key, b'\r' | b'\n') { Place::Start } else { Place::Within };
        }
        if !characters.is_empty() {
            out.push(Typed::Characters(characters));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Typed::{Break, Characters, End, Help};

    fn said(text: &str) -> Typed {
        Characters(text.into())
    }

    #[test]
    fn a_tilde_counts_only_at_the_beginning_of_a_line() {
        for (pieces, typed) in [
            (vec!["~."], vec![End]),
            (vec!["ls\r", "~", "."], vec![said("ls\r"), End]),
            (vec!["ls\n~."], vec![said("ls\n"), End]),
            (vec!["ls ~."], vec![said("ls ~.")]),
            (vec!["a", "~."], vec![said("a"), said("~.")]),
            (vec!["~B"], vec![Break]),
            (vec!["~B~."], vec![Break, End]),
            (vec!["x\r~Bok\r~?"], vec![said("x\r"), Break, said("ok\r"), Help]),
            (vec!["~b"], vec![said("~b")]),
            (vec!["~", "\r", "~."], vec![said("~\r"), End]),
            (vec!["~~."], vec![said("~.")]),
            (vec!["~~~."], vec![said("~~.")]),
            (vec!["~/x\r"], vec![said("~/x\r")]),
            (vec!["~"], vec![]),
            (vec!["~.never sent"], vec![End]),
            (vec!["\x03\x1b[A\0"], vec![said("\x03\x1b[A\0")]),
            (vec![""], vec![]),
        ] {
            let mut escape = Escape::default();
            let read: Vec<Typed> = pieces.iter().flat_map(|piece| escape.read(piece.as_bytes())).collect();
            assert_eq!(read, typed, "{pieces:?}");
        }
    }
}
