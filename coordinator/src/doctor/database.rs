//! The database: SQLite's file, or what PostgreSQL must be for nothing acknowledged to be lost.

use std::time::Duration;

use landfall_store::{PostgresOptions, PostgresStore, Remarks};

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
            return match PostgresStore::examine(options.clone()).await {
                Ok((unreadable, remarks)) => {
                    let (documents, server) = (crate::health::documents(&unreadable), of_server(&remarks, &options));
                    std::iter::once(documents).chain(server).collect()
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
fn of_server(remarks: &Remarks, options: &PostgresOptions) -> [Finding; 5] {
    let Remarks { lossy_settings, cannot_change_tables, unawaited_replicas, clock_ahead, unwatched } = remarks;
    let settings = match lossy_settings {
        None => Finding::ok("settings of PostgreSQL", "they keep what is committed"),
        Some(why) => Finding::warn("settings of PostgreSQL", why, "it is accepted in [store]: expect losses"),
    };
    let role = match cannot_change_tables {
        None => Finding::ok("role", "it may change the tables"),
        Some(why) => Finding::warn("role", why, "do so before the next version, which may have to change them"),
    };
    let replicas = match (unawaited_replicas, remarks.replicas(options)) {
        (0, _) => Finding::ok("replicas", "no server copies the database, or synchronous_standby_names is set"),
        (_, Ok(())) => {
            let message =
                format!("{unawaited_replicas} servers copy the database, and no commit waits for any of them");
            Finding::warn("replicas", message, "fail over to none of them: it is accepted in [store]")
        }
        (_, Err(why)) => Finding::fail("replicas", why.to_string(), "until then a coordinator does not start"),
    };
    let (by, side) = (clock_ahead.unsigned_abs(), if clock_ahead.is_negative() { "behind" } else { "ahead of" });
    let message = format!("it is {} s {side} this host's", by.as_secs());
    let clock = match remarks.clock(options) {
        Err(why) => Finding::fail("clock of PostgreSQL", message, why.to_string()),
        Ok(()) if by < CLOCKS => Finding::ok("clock of PostgreSQL", "it agrees with this host's"),
        Ok(()) => {
            Finding::warn("clock of PostgreSQL", message, "set both by NTP: coordinators go by their hosts' clocks")
        }
    };
    let sessions = match unwatched {
        None => Finding::ok("sessions", "PostgreSQL shows whether a coordinator works"),
        Some(why) => Finding::warn("sessions", why, "until then the machines of a coordinator that hangs stay there"),
    };
    [settings, role, replicas, clock, sessions]
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use landfall_store::Risk;

    use super::*;
    use crate::finding::Level::{Fail, Ok as Fine, Warn};

    #[test]
    fn a_server_that_may_lose_is_refused_unless_accepted() {
        let options = PostgresOptions::new("postgresql://landfall@localhost/landfall", "".as_ref()).unwrap();
        let accepted = options.clone().accepting(&[Risk::Replicas, Risk::Clock]);
        let of = |why: Option<&str>, unawaited_replicas, seconds| Remarks {
            lossy_settings: None,
            cannot_change_tables: why.map(str::to_owned),
            unawaited_replicas,
            clock_ahead: SignedDuration::from_secs(seconds),
            unwatched: None,
        };
        for (remarks, options, levels) in [
            (of(None, 0, 4), &options, [Fine, Fine, Fine, Fine, Fine]),
            (of(Some("why"), 0, -5), &options, [Fine, Warn, Fine, Warn, Fine]),
            (of(None, 1, 60), &options, [Fine, Fine, Fail, Fail, Fine]),
            (
                Remarks { lossy_settings: Some("why".to_owned()), ..of(None, 1, -60) },
                &accepted,
                [Warn, Fine, Warn, Warn, Fine],
            ),
            (Remarks { unwatched: Some("why".to_owned()), ..of(None, 0, 0) }, &options, [Fine, Fine, Fine, Fine, Warn]),
        ] {
            assert_eq!(of_server(&remarks, options).map(|finding| finding.level), levels, "{remarks:?}");
        }
        assert_eq!(of_server(&of(None, 0, -90), &options)[3].message, "it is 90 s behind this host's");
    }
}
