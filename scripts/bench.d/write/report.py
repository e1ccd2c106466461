#!/usr/bin/env python3
"""Judges the samples of scripts/bench write: prints the table, and writes everything as JSON.

    report.py --samples FILE --facts FILE [--json FILE]

Exits 1 if something of ours failed or left a wrong disk; a missed target is a result.
"""

import argparse
import json
import os
import sys
from statistics import median

import targets as spec

MIB = 1 << 20
GIB = 1 << 30


class Samples:
    """All samples, by group and name."""

    def __init__(self, lines, failed=()):
        """`failed` are the groups that could not even start."""
        self.by = {}
        self.failed = set(failed)
        for line in lines:
            sample = json.loads(line)
            self.by.setdefault((sample["group"], sample["name"]), []).append(sample)

    def ran(self, group):
        return group in self.failed or any(key[0] == group for key in self.by)

    def good(self, group, name):
        """The samples of a contestant, or none unless every one succeeded: half a result is none."""
        samples = self.by.get((group, name), [])
        return samples if all(sample["ok"] for sample in samples) else []

    def value(self, group, name, key="wallSeconds"):
        samples = self.good(group, name)
        return median(sample[key] for sample in samples) if samples else None

    def fastest(self, group, names):
        """The (seconds, name) of the faster tool; one name is its own group."""
        names = (names,) if isinstance(names, str) else names
        found = [(self.value(group, name), name) for name in names]
        found = [pair for pair in found if pair[0] is not None]
        return min(found) if found else None

    def slowest(self, group, stages):
        """The (seconds, name) of the slowest stage, or none if one of them is missing."""
        found = [self.fastest(group, stage) for stage in stages]
        return max(found) if found and all(found) else None


def span(samples, group, name):
    """`median (least..most)` in seconds."""
    good = samples.good(group, name)
    if not good:
        tried = samples.by.get((group, name), [])
        return "failed" if tried or group in samples.failed else "not run"
    walls = [sample["wallSeconds"] for sample in good]
    return f"{median(walls):.3f} ({min(walls):.3f}..{max(walls):.3f})"


def verdict(row, what, value, limit, unit):
    """One judged target; what of ours has no value failed, and what has no limit could not be measured."""
    return {
        "row": row, "target": what, "unit": unit,
        "value": round(value, 4) if value is not None else None,
        "limit": round(limit, 4) if limit is not None else None,
        "verdict": "NOT MEASURED" if limit is None else "MET" if value is not None and value <= limit else "MISSED",
    }


def judge_row(samples, row, cores):
    """The targets of one row, in seconds."""
    ours = samples.value(row.group, row.ours)
    judged = []
    for target in row.targets:
        if target.how == "slowest":
            found = samples.slowest(row.group, target.operand or row.stages)
            base, label = found[0] if found else None, target.label + (f" ({found[1]})" if found else "")
        elif target.how == "cpu":
            cpu = [samples.value(row.group, stage, "cpuSeconds") for stage in target.operand]
            base, label = None if None in cpu else sum(cpu) / cores, target.label
        else:
            base, label = samples.value(row.group, target.operand[0]), target.label or target.operand[0]
        limit = None if base is None else base * target.factor
        judged.append(verdict(row.title, f"<= {target.factor} x {label}", ours, limit, "s")
                      | {"ratio": round(ours / base, 3) if ours is not None and base else None})
    return judged


def judge_read_back(samples):
    judged = []
    for group, plain, checked in spec.READ_BACK:
        if not samples.ran(group):
            continue
        without = {s["round"]: s["wallSeconds"] for s in samples.good(group, plain)}
        pairs = [(s["wallSeconds"], without[s["round"]]) for s in samples.good(group, checked) if s["round"] in without]
        # Of the same round: what slowed the machine then slowed both.
        share = median((a - b) / b for a, b in pairs) if pairs else None
        judged.append(verdict(
            f"read-back on top, {group}", f"<= {spec.READ_BACK_SHARE} x the write", share, spec.READ_BACK_SHARE, "",
        ))
    return judged


def judge_memory(samples, facts):
    """The peak of every contestant of ours, the most of its runs."""
    judged = []
    for (group, name), runs in samples.by.items():
        if runs[0]["kind"] != "ours":
            continue
        window = int(facts.get(f"input.{group}.window-bytes", 0))
        good = samples.good(group, name)
        peak = max(sample["peakRssBytes"] for sample in good) / MIB if good else None
        judged.append(verdict(
            f"peak RSS, {group} {name}", f"<= 64 MiB + {window / MIB:.2f} MiB declared", peak,
            (spec.RSS_BYTES + window) / MIB, "MiB",
        ))
    return judged


def judge_sizes(samples):
    if not samples.ran("sizes"):
        return []
    names = sorted((name for group, name in samples.by if group == "sizes"), key=lambda name: int(name.split("-")[1]))
    per_gib = [(name, samples.value("sizes", name)) for name in names]
    rates = [None if value is None else value / int(name.split("-")[1]) for name, value in per_gib]
    told = ", ".join(f"{name.split('-')[1]} GiB {'failed' if r is None else f'{r:.3f}'}" for (name, _), r in zip(per_gib, rates))
    spread = None if None in rates else max(rates) / min(rates) - 1
    return [verdict(f"cost against size (s per GiB: {told})", "most over least, less 1", spread, spec.LINEAR, "")]


def judge_zeros(samples):
    if not samples.ran("sparse"):
        return []
    decode = samples.value("sparse", "decode")
    return [verdict(
        "packed, 64 GiB of zeros: they cost nothing", f"<= {spec.ZEROS_SHARE} x decoding them",
        samples.value("sparse", "ours-packed"), None if decode is None else decode * spec.ZEROS_SHARE, "s",
    )]


def print_row(samples, row):
    ours = samples.value(row.group, row.ours)
    print(f"\n{row.title}")
    print(f"  {'':24} {'seconds (least..most)':>28} {'ours/it':>8} {'CPU s':>7} {'RSS MiB':>8}")

    def line(mark, name):
        value = samples.value(row.group, name)
        ratio = f"{ours / value:.2f}" if ours is not None and value else "-"
        good = samples.good(row.group, name)
        cpu = f"{samples.value(row.group, name, 'cpuSeconds'):.2f}" if good else "-"
        rss = f"{max(s['peakRssBytes'] for s in good) / MIB:.0f}" if good else "-"
        print(f"  {mark + ' ' + name:24} {span(samples, row.group, name):>28} {'' if mark == 'ours' else ratio:>8} {cpu:>7} {rss:>8}")

    line("ours", row.ours)
    for peer in row.peers:
        line("peer", peer)
    for stage in row.stages:
        for name in (stage,) if isinstance(stage, str) else stage:
            line("stage", name)
    slowest = samples.slowest(row.group, row.stages)
    if ours is not None and slowest:
        print(f"  {ours / slowest[0]:.2f} x the slowest single stage ({slowest[1]})")


def print_table(samples, facts, judged, checks):
    rows = [row for row in spec.ROWS if samples.ran(row.group)]
    for row in rows:
        print_row(samples, row)
    print(f"\n{'target':100} {'is':>9} {'limit':>9}  verdict")
    for entry in judged:
        value, limit = (f"{entry[key]:.3f}" if entry[key] is not None else "-" for key in ("value", "limit"))
        what = f"{entry['row']}: {entry['target']}"
        print(f"{what:100} {value:>9} {limit:>9}  {entry['verdict']}")
    print()
    for (group, name), runs in samples.by.items():
        failure = next((run["failure"] for run in runs if not run["ok"]), None)
        if failure:
            print(f"failed: {group} {name}: {failure.splitlines()[-1][:300]}")
    for key, value in facts.items():
        if key.startswith("failed."):
            print(f"failed: {key[7:]}: {value}")
    wrong = {key: value for key, value in checks.items() if value != "equal"}
    for key, value in wrong.items():
        print(f"wrong disk: {key}: {value}")
    print(f"disks compared with the image: {len(checks)}, of which differ: {len(wrong)}")


def print_conditions(samples, facts):
    print("command lines (the server, the inputs and the disk are this run's):")
    for (group, name), runs in samples.by.items():
        print(f"  {group:7} {name:18} {runs[0]['command']}")
    print(f"machine: {facts['machine.cores']} cores, {facts['machine.processor']}, {facts['machine.kernel']}, "
          f"{facts['machine.memory-mib']} MiB, load before {facts['machine.load-before']}, after {facts['machine.load-after']}")
    walls = sum(s["wallSeconds"] for runs in samples.by.values() for s in runs)
    others = sum(s["otherCpuSeconds"] for runs in samples.by.values() for s in runs)
    print(f"CPU outside the measured processes: {others / walls if walls else 0:.2f} cores on average "
          "(server, kernel threads, and whatever else this machine did)")
    if float(facts["machine.load-before"].split()[0]) > int(facts["machine.cores"]) / 2:
        print("WARNING: the machine was busy before the start: the figures are noisy, and so are the verdicts")
    print(f"tools: {', '.join(f'{k[5:]} {v}' for k, v in facts.items() if k.startswith('tool.') and not k.endswith('sha256'))}")
    print(f"{facts['run.runs']} runs each, {int(facts['run.data-bytes']) / MIB:.0f} MiB of data in the image, "
          f"{facts['run.seconds']} s in all; CPU seconds and RSS are the client's, RSS that of its largest process")


def as_json(samples, facts, judged, checks):
    contestants = []
    for (group, name), runs in samples.by.items():
        shared = ("group", "name", "kind", "command")
        contestants.append({key: runs[0][key] for key in shared} | {
            "medianSeconds": samples.value(group, name),
            "samples": [{key: value for key, value in run.items() if key not in shared} for run in runs],
        })
    return {"facts": facts, "targets": judged, "checks": checks, "contestants": contestants}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", required=True)
    parser.add_argument("--facts", required=True)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with open(arguments.facts) as file:
        facts = dict(fact.split("=", 1) for fact in file.read().split("\0") if fact)
    with open(arguments.samples) as lines:
        samples = Samples(lines, (key.split(".")[1] for key in facts if key.startswith("failed.")))
    checks = {key[6:]: value for key, value in facts.items() if key.startswith("check.")}
    facts = {key: value for key, value in facts.items() if not key.startswith("check.")}

    cores = int(facts["machine.cores"])
    judged = [entry for row in spec.ROWS if samples.ran(row.group) for entry in judge_row(samples, row, cores)]
    judged += judge_read_back(samples) + judge_zeros(samples) + judge_memory(samples, facts) + judge_sizes(samples)
    print_conditions(samples, facts)
    print_table(samples, facts, judged, checks)
    count = {word: sum(entry["verdict"] == word for entry in judged) for word in ("MET", "MISSED", "NOT MEASURED")}
    print("targets: " + ", ".join(f"{number} {word.lower()}" for word, number in count.items() if number))
    if arguments.json:
        # Beside its name first: a report is whole or not there.
        with open(arguments.json + ".part", "w") as out:
            json.dump(as_json(samples, facts, judged, checks), out, indent=2)
            out.write("\n")
        os.replace(arguments.json + ".part", arguments.json)
    ours = [run["ok"] for runs in samples.by.values() for run in runs if run["kind"] == "ours"]
    sys.exit(0 if all(ours) and not samples.failed and all(value == "equal" for value in checks.values()) else 1)


main()
