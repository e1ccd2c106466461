# The runs: within a group everybody in turn, again and again (ABCABC), so that a slow minute of the machine hits all.
# shellcheck shell=bash

# warm: what the group reads comes from memory, for everybody.
warm() {
    local index word
    for index in "$@"; do
        for word in ${C_COMMAND[index]}; do
            case $word in
            "$SERVER"/*) curl -sf -o /dev/null "$word" || true ;;
            "$INPUTS"/* | "$SYNTHETIC"/*) cat "$word" >/dev/null ;;
            esac
        done
    done
}

# verify_disk INDEX ROUND: compares the disk with the image, outside the timed window.
verify_disk() {
    local index=$1 status=0 verdict
    verdict=$(bash -o pipefail -c "${C_TRUTH[index]} | $HERE/check.py $DEVICE" 2>&1) || status=$?
    blockdev --flushbufs "$DEVICE"
    log "$(printf '%-8s %d/%d  %-18s %s' "${C_GROUP[index]}" "$2" "$3" "${C_NAME[index]}" "${verdict##*$'\n'}")"
    fact "check.${C_GROUP[index]}.${C_NAME[index]}.$2" "$([ "$status" = 0 ] && echo "equal" || echo "DIFFERENT: $verdict")"
}

# run_group GROUP RUNS
run_group() {
    local group=$1 runs=$2 members=() index round line
    for index in "${!C_GROUP[@]}"; do [ "${C_GROUP[index]}" != "$group" ] || members+=("$index"); done
    [ ${#members[@]} -gt 0 ] || return 0
    warm "${members[@]}"
    for ((round = 1; round <= runs; round++)); do
        for index in "${members[@]}"; do
            # Only those that touch the disk need it fresh.
            if [[ ${C_COMMAND[index]} == *"$DEVICE"* ]]; then wipe_device; fi
            if [ -n "${C_PREPARE[index]}" ]; then bash -c "${C_PREPARE[index]}"; fi
            waited "$BENCH_D/measure.py" --out "$SAMPLES" --group "$group" --name "${C_NAME[index]}" \
                --kind "${C_KIND[index]}" --round "$round" --served "$SERVED" \
                --attach "$WORK/ours.json" "${C_COMMAND[index]}" >"$WORK/line" </dev/null
            line=$(<"$WORK/line")
            log "$(printf '%-8s %d/%d  %-18s %s' "$group" "$round" "$runs" "${C_NAME[index]}" "$line")"
            [ "${C_KIND[index]}" = ours ] || continue
            [[ $line != *FAILED* ]] || continue
            if [ "$round" = 1 ] || [ -n "$CHECK_ALL" ]; then verify_disk "$index" "$round" "$runs"; fi
        done
    done
}

# run_all RUNS: every group registered so far, in the order of registration; then forgets them.
run_all() {
    local runs=$1 group done=' '
    for group in "${C_GROUP[@]}"; do
        [[ $done != *" $group "* ]] || continue
        done+="$group "
        [ -z "$ONLY" ] || [[ ",$ONLY," == *",$group,"* ]] || continue
        run_group "$group" "$runs"
    done
    C_GROUP=() C_NAME=() C_KIND=() C_COMMAND=() C_PREPARE=() C_TRUTH=()
}
