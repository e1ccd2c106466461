//! The topics of `landfall help TOPIC` that are not commands.

use clap::Args;

/// A topic takes no arguments: `landfall exit-codes` prints the same as `landfall help exit-codes`.
#[derive(Debug, Args)]
pub(crate) struct Topic {}

/// One source for `--help`, the manual pages and this topic.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failure (with --wait: the workflow failed or was cancelled; wait: the condition can no longer be reached)
  2  the command line is wrong
  3  the document does not exist
  4  refused: an invalid document, a conflict, a busy machine, no permission
  5  the coordinator cannot be reached
  6  timed out while waiting
  7  import: the documents are written, and something has no counterpart or needs a value";

pub(crate) const OUTPUT: &str = "\
Formats (-o, --output):
  table, wide               For people. Colours only on a terminal, never with NO_COLOR set.
  json, yaml                The documents: for one name the document, else {items, metadata}; apply reads
                            the yaml form.
  name                      KIND/NAME, one per line, as input for other commands.
  jsonpath=TEMPLATE         Text with {expressions} in braces.
  custom-columns=HEAD:PATH  Your own columns, separated by commas.

Templates, with kubectl's syntax:
  {.metadata.name}                                    a field
  {.items[*].metadata.name}                           of all items, separated by spaces
  {.items[?(@.status.phase==\"Failed\")].metadata.name} of the matching items
  {..macs[0]}  {.items[-1:]}  {.metadata.labels['a.b']}  {.metadata.labels.a\\.b}
  {range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{\"\\n\"}{end}
  A missing field gives an empty text. Filters follow RFC 9535, with &&, || and length().";

pub(crate) const SELECTORS: &str = "\
Labels (-l, --selector): requirements separated by commas; a document must match all of them:
  rack                      the document has the label
  !rack                     it does not have the label
  rack=r7  rack==r7         it has that value
  rack!=r7                  it has another value, or the label is missing
  rack in (r7,r8)           it has one of these values
  rack notin (r7,r8)        it has none of these values, or the label is missing
  \"owner of\"=\"ann b\"        quote text with spaces or ,=!()\"\\

Kinds: machines (m), templates (t), workflows (w, wf), secrets, enrolmentrules; several as m,wf; all of them as all.
Names: KIND NAME NAME…, or KIND/NAME KIND/NAME….";
