//! What `landfall help TOPIC` tells besides commands.

use clap::Args;

/// A topic takes nothing: `landfall exit-codes` says the same as `landfall help exit-codes`.
#[derive(Debug, Args)]
pub(crate) struct Topic {}

/// One source for `--help`, the manual pages and this topic.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed (with --wait: the workflow failed or was cancelled; wait: it can no longer come true)
  2  the command line is wrong
  3  there is no such document
  4  refused: an invalid document, a conflict, a busy machine, no permission
  5  the coordinator cannot be reached
  6  what was waited for did not come in time";

pub(crate) const OUTPUT: &str = "\
Forms (-o, --output):
  table, wide               For people. Colours only on a terminal, never with NO_COLOR set.
  json, yaml                The documents themselves: of one name the document, else {items, metadata}; yaml is what
                            apply takes.
  name                      KIND/NAME, one a line: for other commands.
  jsonpath=TEMPLATE         Text with {expressions} in braces.
  custom-columns=HEAD:PATH  Columns of your own, with commas between.

Templates, as kubectl's users write them:
  {.metadata.name}                                    a field
  {.items[*].metadata.name}                           of all, with spaces between
  {.items[?(@.status.phase==\"Failed\")].metadata.name} of those that agree
  {..macs[0]}  {.items[-1:]}  {.metadata.labels['a.b']}  {.metadata.labels.a\\.b}
  {range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{\"\\n\"}{end}
  What is not there is nothing. The rest is RFC 9535, such as && and || and length() in filters.";

pub(crate) const SELECTORS: &str = "\
Labels (-l, --selector), requirements with commas between, all of which must hold:
  rack                      the label is there
  !rack                     it is not
  rack=r7  rack==r7         it has that value
  rack!=r7                  it has not, or is not there
  rack in (r7,r8)           it has one of these values
  rack notin (r7,r8)        it has none of them, or is not there
  \"owner of\"=\"ann b\"        what holds spaces or ,=!()\"\\ is quoted

Kinds: machines (m), templates (t), workflows (w, wf), secrets, enrolmentrules; several as m,wf; all of them as all.
Names: KIND NAME NAME…, or KIND/NAME KIND/NAME….";
