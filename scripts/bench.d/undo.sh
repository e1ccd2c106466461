# What to undo at the end, however the end comes: newest first, on success, failure and signals alike.
# shellcheck shell=bash

UNDO=() RUNNING=''

# undo COMMAND: one line of shell, run at the end.
undo() { UNDO+=("$1"); }

_undo_all() {
    local status=$? index
    trap - EXIT
    # A second Ctrl-C must not leave a loop device behind.
    trap '' INT TERM HUP
    set +e
    # Nothing can be taken away under what still uses it.
    [ -z "$RUNNING" ] || end_process "$RUNNING"
    for ((index = ${#UNDO[@]} - 1; index >= 0; index--)); do eval "${UNDO[index]}"; done
    exit "$status"
}

# undo_at_exit: call it once, in the main shell.
undo_at_exit() {
    trap _undo_all EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}

# end_process PID: ends one process that this shell started, and waits for it.
end_process() {
    kill "$1" 2>/dev/null
    wait "$1" 2>/dev/null
    return 0
}

# waited COMMAND...: runs it so that a signal to this shell is acted on at once, not when the command ends.
waited() {
    "$@" 9>&- &
    RUNNING=$!
    local status=0
    wait "$RUNNING" || status=$?
    RUNNING=''
    return "$status"
}
