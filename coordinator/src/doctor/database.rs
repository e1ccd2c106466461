//! The database: SQLite's file, or what PostgreSQL must be for nothing acknowledged to be lost.

use std::time::Duration;

use landfall_store::{PostgresStore, Remarks};

use super::with_causes;
use crate::config::Config;
use crate::finding::Finding;

/// Clocks kept by NTP differ by milliseconds.
const CLOCKS: Duration = Duration::from_secs(5);

/// Every page and index of the database, and every document in it; before the first start there is none. Of PostgreSQL what the
/// promise needs that nothing acknowledged is lost, and every document.
pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let data_dir = &config.data_dir;
    match config.postgres() {
        Ok(None) => {}
        Ok(Some(options)) => {
            let hint = "start PostgreSQL, correct [store], or the setting that is named (docs/scale.md)";
            return match PostgresStore::examine(options).await {
                Ok((unreadable, remarks)) => {
                    std::iter::once(crate::health::documents(&unreadable)).chain(of_server(&remarks)).collect()
                }
                Err(error) => vec![Finding::fail("database", with_causes(&error), hint)],
            };
        }
        Err(error) => return vec![Finding::fail("database", with_causes(&error), "correct [store]")],
    }
    if !data_dir.join(landfall_store::DATABASE).exists() {
        return Vec::new();
    }
    vec![match landfall_store::examine(data_dir) {
        Ok(unreadable) => crate::health::documents(&unreadable),
        Err(error) => Finding::fail("database", with_causes(&error), "restore a backup if the database is damaged"),
    }]
}

/// Pure.
fn of_server(remarks: &Remarks) -> [Finding; 3] {
    let Remarks { cannot_change_tables, unawaited_replicas, clock_ahead } = remarks;
    let role = match cannot_change_tables {
        None => Finding::ok("role", "it may change the tables"),
        Some(why) => Finding::warn("role", why, "do so before the next version, which may have to change them"),
    };
    let replicas = match unawaited_replicas {
        0 => Finding::ok("replicas", "no server copies the database without a commit that waits for it"),
        _ => Finding::warn(
            "replicas",
            format!(
                "{unawaited_replicas} servers copy the database, and no commit waits for them: a fail-over to one loses \
                 what it does not have"
            ),
            "name one in synchronous_standby_names, or fail over to none of them",
        ),
    };
    let (by, side) = (clock_ahead.unsigned_abs(), if clock_ahead.is_negative() { "behind" } else { "ahead of" });
    let clock = if by < CLOCKS {
        Finding::ok("clock of PostgreSQL", "it agrees with this host's")
    } else {
        let message = format!("it is {} s {side} this host's", by.as_secs());
        Finding::warn("clock of PostgreSQL", message, "keep both by NTP: coordinators go by their hosts' clocks")
    };
    [role, replicas, clock]
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::finding::Level::{Ok as Fine, Warn};

    #[test]
    fn a_server_that_may_lose_or_mislead_is_a_warning() {
        let of = |why: Option<&str>, unawaited_replicas, seconds| Remarks {
            cannot_change_tables: why.map(str::to_owned),
            unawaited_replicas,
            clock_ahead: SignedDuration::from_secs(seconds),
        };
        for (remarks, levels) in [
            (of(None, 0, 4), [Fine, Fine, Fine]),
            (of(Some("why"), 0, 0), [Warn, Fine, Fine]),
            (of(None, 1, -4), [Fine, Warn, Fine]),
            (of(None, 0, -5), [Fine, Fine, Warn]),
        ] {
            assert_eq!(of_server(&remarks).map(|finding| finding.level), levels, "{remarks:?}");
        }
        assert_eq!(of_server(&of(None, 0, -90))[2].message, "it is 90 s behind this host's");
    }
}
