# coreos-installer, the closest peer: not in Debian, so built once as a crate.
# shellcheck shell=bash

COREOS_VERSION=0.27.0

# coreos_installer: path of the program (built or not).
coreos_installer() { printf '%s/bench/coreos-installer-%s/bin/coreos-installer\n' "$LANDFALL_CACHE" "$COREOS_VERSION"; }

_build_coreos_installer() {
    local root=$LANDFALL_CACHE/bench/coreos-installer-$COREOS_VERSION
    [ ! -x "$root/bin/coreos-installer" ] || return 0
    log "building coreos-installer $COREOS_VERSION, once (minutes)"
    # From another directory and into its own target: this workspace links statically, and the peer must be what its
    # users have.
    (
        cd "$LANDFALL_CACHE/bench" || exit
        unset CARGO_TARGET_DIR RUSTFLAGS
        cargo install --quiet coreos-installer --version "$COREOS_VERSION" --locked --root "$root" \
            --target-dir "$root/build" >&2
        rm -rf --one-file-system "$root/build"
    )
}

# build_coreos_installer: does nothing if it is there.
build_coreos_installer() {
    cache_dir "$LANDFALL_CACHE/bench"
    with_lock coreos-installer _build_coreos_installer
}
