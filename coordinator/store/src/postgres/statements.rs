//! The statements of the session that writes, each prepared once. What a transaction writes goes in arrays: one statement of each
//! kind, however many rows.

use tokio_postgres::{Client, Error, Statement};

macro_rules! statements {
    ($($name:ident: $sql:expr;)*) => {
        /// Prepared statements.
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)*
        }

        impl Statements {
            pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
                Ok(Self { $($name: client.prepare($sql).await?,)* })
            }
        }
    };
}

statements! {
    // The holder of these rows' locks gives out the next revisions, and begins turns. Both rows are as the former holder left them.
    lock: "SELECT l.revision, t.numbers FROM landfall l, turns t FOR UPDATE";
    set_revision: "UPDATE landfall SET revision = $1";
    set_turns: "UPDATE turns SET numbers = $1";
    // The store's revision in each row, and a single row without a change where there is none.
    changes: "SELECT l.revision, c.revision, c.op, c.kind, c.name, c.json, c.schema FROM landfall l
        LEFT JOIN LATERAL (SELECT * FROM changes WHERE revision > $1 ORDER BY revision LIMIT $2) c ON true
        ORDER BY c.revision";
    // A row to lock for each workflow, also for its first events. In one order, so that no two transactions wait for each other.
    make_runs: "INSERT INTO runs (workflow, events, newest) SELECT w, 0, 0 FROM unnest($1::uuid[]) AS w ORDER BY w
        ON CONFLICT DO NOTHING";
    runs: "SELECT workflow, events, epoch FROM runs WHERE workflow = ANY ($1) ORDER BY workflow FOR UPDATE";
    newest: "SELECT a.workflow, a.action_index, a.attempt,
        (SELECT max(e.seq) FROM events e
         WHERE (e.workflow, e.action_index, e.attempt) = (a.workflow, a.action_index, a.attempt))
        FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS a (workflow, action_index, attempt)";
    positions: "SELECT e.workflow, e.action_index, e.attempt, e.seq, e.position
        FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[]) AS a (workflow, action_index, attempt, seq)
        JOIN events e USING (workflow, action_index, attempt, seq)";
    // A new document takes no row's place, but this is for the replaced ones too: the writer knows of unreadable ones.
    put_documents: "INSERT INTO documents (kind, name, json, schema)
        SELECT kind, name, json, $4 FROM unnest($1::text[], $2::text[], $3::text[]) AS a (kind, name, json)
        ON CONFLICT (kind, name) DO UPDATE SET json = excluded.json, schema = excluded.schema";
    remove_documents: "DELETE FROM documents d USING unnest($1::text[], $2::text[]) AS a (kind, name)
        WHERE d.kind = a.kind AND d.name = a.name";
    put_changes: "INSERT INTO changes (revision, op, kind, name, json, schema)
        SELECT revision, op, kind, name, json, $6
        FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::text[], $5::text[]) AS a (revision, op, kind, name, json)";
    put_history: "INSERT INTO history (revision, kind, name, time, json)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[])";
    bound_history: "DELETE FROM history h USING (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS a (kind, name)) a
        WHERE h.kind = a.kind AND h.name = a.name AND h.revision <= (SELECT o.revision FROM history o
            WHERE o.kind = a.kind AND o.name = a.name ORDER BY o.revision DESC LIMIT 1 OFFSET $3)";
    // Positions in the order of the arrays: an INSERT numbers its rows after its SELECT has put them in order.
    put_events: "INSERT INTO events (workflow, action_index, attempt, seq, json)
        SELECT workflow, action_index, attempt, seq, json
        FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
            WITH ORDINALITY AS a (workflow, action_index, attempt, seq, json, n) ORDER BY n
        RETURNING workflow, action_index, attempt, seq, position";
    // After the events: `newest` is of what this transaction has just written, or of another one before it.
    put_runs: "INSERT INTO runs (workflow, events, newest)
        SELECT workflow, events, (SELECT max(position) FROM events e WHERE e.workflow = a.workflow)
        FROM unnest($1::uuid[], $2::bigint[]) AS a (workflow, events) ORDER BY workflow
        ON CONFLICT (workflow) DO UPDATE SET events = runs.events + excluded.events, newest = greatest(runs.newest, excluded.newest)";
    raise_epochs: "UPDATE runs r SET epoch = a.epoch FROM unnest($1::uuid[], $2::bigint[]) AS a (workflow, epoch)
        WHERE r.workflow = a.workflow AND r.epoch < a.epoch";
    // Of workflows whose events were all refused, and of those that are gone. (The log of one that is gone is forgotten after it.)
    drop_runs: "DELETE FROM runs WHERE events = 0 AND (workflow = ANY ($1) AND epoch = 0 OR workflow = ANY ($2))";
    drop_intents: "DELETE FROM audit WHERE position = ANY ($1) AND is_intent";
    // Its row's lock puts the entries of all coordinators in one order: a reader that follows the log misses none.
    put_audit: "WITH c AS (UPDATE audit_count SET newest = newest + cardinality($1::smallint[]) RETURNING newest)
        INSERT INTO audit (position, ring, is_intent, json)
        SELECT c.newest - cardinality($1::smallint[]) + n, ring, is_intent, json
        FROM c, unnest($1::smallint[], $2::boolean[], $3::text[]) WITH ORDINALITY AS a (ring, is_intent, json, n)
        RETURNING position";
    // Of an hour at most, whatever there is room for.
    trim_changes: "DELETE FROM changes WHERE revision <= (SELECT max(c.revision) FROM (
            SELECT revision, at, row_number() OVER newest AS nth, sum(octet_length(json)) OVER newest AS bytes
            FROM changes WINDOW newest AS (ORDER BY revision DESC)) c
        WHERE c.nth > $1 OR c.bytes > $2 OR c.at < now() - interval '1 hour')";
    notify: "SELECT pg_notify('landfall', '')";
}
