#!/usr/bin/env python3
"""Prints the medians of scripts/bench actions and each target, met or missed; exits 1 if one of ours failed."""

import argparse
import json
import statistics
import sys

# Of the group: ours may take so many times as long as tar.
TARGETS = {"tar": 1.05, "zstd": 0.7}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", required=True)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with open(arguments.samples) as lines:
        samples = [json.loads(line) for line in lines]

    medians = {}
    for key in dict.fromkeys((sample["group"], sample["name"]) for sample in samples):
        mine = [sample for sample in samples if (sample["group"], sample["name"]) == key and sample["ok"]]
        if mine:
            wall, cpu = (statistics.median(sample[field] for sample in mine) for field in ("wallSeconds", "cpuSeconds"))
            peak = max(sample["peakRssBytes"] for sample in mine)
            medians[key] = wall
            print(f"{key[0]:5} {key[1]:8} {wall:8.3f} s  {cpu:7.2f} CPU s  {peak >> 20:5} MiB  of {len(mine)}")
    targets = []
    for group, most in TARGETS.items():
        if (group, "ours") in medians and (group, "tar") in medians:
            ratio = medians[group, "ours"] / medians[group, "tar"]
            targets.append({"group": group, "ratio": round(ratio, 3), "most": most, "met": ratio <= most})
            print(f"target {group}: {ratio:.3f} x tar, at most {most}: {'met' if ratio <= most else 'MISSED'}")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump({"samples": samples, "targets": targets}, out, indent=2)
    sys.exit(any(not sample["ok"] and sample["kind"] == "ours" for sample in samples))


main()
