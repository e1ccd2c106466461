//! Which documents a command applies to: kinds, names and labels, in kubectl's syntax.

use clap::Args;
use landfall_api::{Kind, LabelSelector};

use crate::failure::Failure;

/// A kind as people write it: machine, machines, Machine, m.
pub(crate) fn kind(word: &str) -> Result<Kind, String> {
    Kind::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().flat_map(|k| [k.singular(), k.plural()]).collect();
        let nearest = landfall_api::nearest(word, &known).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        let plurals: Vec<&str> = Kind::ALL.iter().map(|k| k.plural()).collect();
        format!("\"{word}\" is not a kind{nearest} The kinds are {}", plurals.join(", "))
    })
}

/// A kind, or KIND/NAME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((_, "")) => Err("a name is missing after the /".into()),
            Some((word, name)) => Ok(Self { kind: kind(word)?, name: Some(name.to_owned()) }),
            None => Ok(Self { kind: kind(text)?, name: None }),
        }
    }
}

/// KIND[,KIND…] [NAME…], or KIND/NAME….
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// machines, templates, workflows, pools, secrets or enrolmentrules (or m, t, w, rules), several separated by commas,
    /// or all; then names. Or KIND/NAME, any number of times.
    #[arg(required = true, value_name = "KIND[/NAME]|NAME")]
    pub(crate) words: Vec<String>,
}

/// The documents that the words select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Every document of these kinds.
    Kinds(Vec<Kind>),
    /// The named documents.
    Named(Vec<(Kind, String)>),
}

impl Selection {
    /// The kinds that are in it, each once.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = match self {
            Self::Kinds(kinds) => kinds.clone(),
            Self::Named(named) => named.iter().map(|(kind, _)| *kind).collect(),
        };
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// Whether that document is in it.
    pub(crate) fn has(&self, kind: Kind, name: &str) -> bool {
        match self {
            Self::Kinds(kinds) => kinds.contains(&kind),
            Self::Named(named) => named.iter().any(|(k, n)| *k == kind && n == name),
        }
    }
}

impl Which {
    /// The documents that the words select.
    ///
    /// # Errors [`Failure::Usage`] if the words are not valid.
    pub(crate) fn selection(&self) -> Result<Selection, Failure> {
        self.read().map_err(Failure::Usage)
    }

    fn read(&self) -> Result<Selection, String> {
        let (first, rest) = self.words.split_first().ok_or("a kind is missing")?;
        if first.contains('/') {
            let one = |word: &String| match word.parse::<Target>()? {
                Target { kind, name: Some(name) } => Ok((kind, name)),
                Target { .. } => Err(format!("after {first} each further word must also be KIND/NAME, not \"{word}\"")),
            };
            return Ok(Selection::Named(self.words.iter().map(one).collect::<Result<_, String>>()?));
        }
        let mut kinds = if first == "all" {
            Kind::ALL.to_vec()
        } else {
            first.split(',').map(kind).collect::<Result<Vec<_>, _>>()?
        };
        kinds.dedup();
        match (rest, kinds.as_slice()) {
            ([], _) => Ok(Selection::Kinds(kinds)),
            (names, [kind]) => match names.iter().find(|name| name.contains('/')) {
                Some(odd) => Err(format!("\"{odd}\" is not the name of a {}; write KIND/NAME alone", kind.singular())),
                None => Ok(Selection::Named(names.iter().map(|name| (*kind, name.clone())).collect())),
            },
            _ => Err("with several kinds, write KIND/NAME for each name".into()),
        }
    }
}

/// Documents by their labels.
#[derive(Debug, Default, Args)]
pub(crate) struct Labels {
    /// Only documents with matching labels: a=b, c!=d, e in (x,y), f notin (z), g, !h; separated by commas.
    #[arg(short = 'l', long = "selector", value_name = "LABELS")]
    pub(crate) selector: Option<LabelSelector>,
}

impl Labels {
    /// Refuses a selector together with names, because the intent is not clear.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn with(&self, selection: &Selection) -> Result<(), Failure> {
        match (&self.selector, selection) {
            (Some(_), Selection::Named(_)) => {
                Err(Failure::Usage("names and --selector exclude each other; use one of them".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Machines by name or label, and how many at once.
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// Machines.
    // Completion goes by the argument's name.
    #[arg(id = "machines", value_name = "MACHINE")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
    #[command(flatten)]
    pub(crate) several: Several,
}

/// How a command deals with several machines.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Several {
    /// How many machines are dealt with at once; with --wait, on how many a workflow runs at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "NUMBER")]
    pub(crate) max_parallel: u16,
    /// After so many failures no other machine is begun. Default: all are.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "NUMBER")]
    pub(crate) max_failures: Option<u32>,
}

impl Several {
    /// Of a command for one.
    pub(crate) const ONE: Self = Self { max_parallel: 1, max_failures: None };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Selection, String> {
        Which { words: words.iter().map(ToString::to_string).collect() }.read()
    }

    #[test]
    fn every_spelling_of_a_kind_is_accepted() {
        for word in ["machine", "machines", "Machine", "m"] {
            assert_eq!(read(&[word]), Ok(Selection::Kinds(vec![Kind::Machine])));
        }
        assert!(read(&["machnes"]).unwrap_err().contains("did you mean machines?"));
        assert_eq!(read(&["all"]), Ok(Selection::Kinds(Kind::ALL.to_vec())));
        assert_eq!(read(&["m,wf"]), Ok(Selection::Kinds(vec![Kind::Machine, Kind::Workflow])));
    }

    #[test]
    fn names_are_given_in_either_way_and_never_in_both() {
        let named = |pairs: &[(Kind, &str)]| {
            Ok(Selection::Named(pairs.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect()))
        };
        assert_eq!(read(&["m", "a", "b"]), named(&[(Kind::Machine, "a"), (Kind::Machine, "b")]));
        assert_eq!(read(&["m/a", "wf/b"]), named(&[(Kind::Machine, "a"), (Kind::Workflow, "b")]));
        for bad in [&["m/a", "b"][..], &["m", "wf/b"], &["m,wf", "a"], &["m/"], &["all", "a"], &["m,"], &[]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
