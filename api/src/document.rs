//! A document of whatever kind.

use serde::Serialize;

use crate::{EnrolmentRule, Kind, Machine, Metadata, Pool, Secret, Shared, Template, Workflow};

/// Any document. A clone shares it.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// A machine.
    Machine(Shared<Machine>),
    /// A template.
    Template(Shared<Template>),
    /// A workflow.
    Workflow(Shared<Workflow>),
    /// A secret.
    Secret(Shared<Secret>),
    /// An enrolment rule.
    EnrolmentRule(Shared<EnrolmentRule>),
    /// A pool.
    Pool(Shared<Pool>),
}

impl Document {
    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Machine(_) => Kind::Machine,
            Self::Template(_) => Kind::Template,
            Self::Workflow(_) => Kind::Workflow,
            Self::Secret(_) => Kind::Secret,
            Self::EnrolmentRule(_) => Kind::EnrolmentRule,
            Self::Pool(_) => Kind::Pool,
        }
    }
    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        match self {
            Self::Machine(d) => &d.metadata,
            Self::Template(d) => &d.metadata,
            Self::Workflow(d) => &d.metadata,
            Self::Secret(d) => &d.metadata,
            Self::EnrolmentRule(d) => &d.metadata,
            Self::Pool(d) => &d.metadata,
        }
    }
    /// The metadata, to be filled in by a store.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        match self {
            Self::Machine(d) => &mut d.metadata,
            Self::Template(d) => &mut d.metadata,
            Self::Workflow(d) => &mut d.metadata,
            Self::Secret(d) => &mut d.metadata,
            Self::EnrolmentRule(d) => &mut d.metadata,
            Self::Pool(d) => &mut d.metadata,
        }
    }
    /// `machine/node-1`, as the command line names it.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.kind().singular(), self.metadata().name)
    }
}

macro_rules! of_each_kind {
    ($($kind:ident)*) => {
        $(
            impl From<$kind> for Document {
                fn from(document: $kind) -> Self {
                    Self::$kind(document.into())
                }
            }
            impl From<Shared<$kind>> for Document {
                fn from(document: Shared<$kind>) -> Self {
                    Self::$kind(document)
                }
            }
        )*
    };
}

of_each_kind!(Machine Template Workflow Secret EnrolmentRule Pool);

impl Serialize for Document {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Machine(d) => d.serialize(s),
            Self::Template(d) => d.serialize(s),
            Self::Workflow(d) => d.serialize(s),
            Self::Secret(d) => d.serialize(s),
            Self::EnrolmentRule(d) => d.serialize(s),
            Self::Pool(d) => d.serialize(s),
        }
    }
}
