//! `landfall delete`.

use landfall_api::ErrorCode;

use crate::{args::Delete, client::Client, failure::Failure, output::Out};

pub(crate) async fn run(args: &Delete, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let names = args.which.names();
    let kind = args.which.target.kind;
    if names.is_empty() {
        return Err(Failure::Usage(format!("say which {} to delete", kind.plural())));
    }
    let mut failed = None;
    for name in &names {
        match client.delete(kind, name).await {
            Ok(document) => out.line(&format!("{} deleted", document.reference()))?,
            Err(Failure::Problem(p)) if args.ignore_not_found && p.code == ErrorCode::NotFound => {}
            // The others are still deleted; each failure is said, the last one decides the exit code.
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    Failure::print(&earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}
