"""The rows of the table and their targets, as the issue states them; report.py judges them.

An operand names contestants of the row's group and is a number of seconds: the median of one ("decode"), the faster of
several ("faster of"), the slower of several ("slower of"), all stages' CPU seconds shared by the cores ("cpu of"). The
slowest stage of a row is the slower of its `stages`, where each may be a tuple of tools for the same work: then the
faster one counts.
"""

from dataclasses import dataclass, field

GZIP_DECODERS = ("decode-libdeflate", "decode-igzip")
STAGES = ("download", "decode", "write", "sha256")


@dataclass
class Target:
    """At most `factor` times the operand."""

    factor: float
    how: str  # "slowest" | "of" | "cpu"
    operand: tuple = ()
    label: str = ""


@dataclass
class Row:
    title: str
    group: str
    ours: str = "ours"
    stages: tuple = STAGES
    peers: tuple = ()
    targets: list = field(default_factory=list)


ROWS = [
    Row(
        "zstd, one plain frame", "zstd",
        peers=("curl|zstd|dd", "coreos-installer", "bmaptool"),
        targets=[
            Target(1.15, "slowest", label="the slowest stage alone"),
            Target(0.5, "of", ("curl|zstd|dd",)),
            Target(0.3, "of", ("coreos-installer",)),
        ],
    ),
    Row(
        "our packed image", "packed",
        targets=[
            Target(1.1, "cpu", STAGES, "the stages' CPU seconds / cores"),
            Target(0.95, "of", ("decode",), "single-threaded decode alone"),
        ],
    ),
    Row(
        "zstd, digest of the raw bytes", "zstd", ours="ours-raw-digest",
        stages=("download", "decode", "write", "sha256-raw"),
        targets=[Target(1.15, "slowest", ("decode", "sha256-raw"), "the slower of decode and sha256 of the raw bytes")],
    ),
    Row(
        "gzip", "gzip",
        stages=("download", (*GZIP_DECODERS, "decode-zlib-rs"), "write", "sha256"),
        peers=("coreos-installer", "bmaptool"),
        targets=[
            Target(1.15, "slowest", (GZIP_DECODERS,), "the faster of libdeflate and ISA-L"),
            Target(0.5, "of", ("coreos-installer",)),
        ],
    ),
    Row(
        "xz, many blocks", "xz",
        peers=("coreos-installer", "bmaptool"),
        targets=[
            Target(1.2, "of", ("decode",), "xz -T2 -dc alone"),
            Target(0.5, "of", ("coreos-installer",)),
        ],
    ),
    Row(
        "qcow2", "qcow2",
        peers=("curl, qemu-img",),
        targets=[Target(0.7, "of", ("curl, qemu-img",), "curl, then qemu-img convert")],
    ),
    Row(
        "vmdk", "vmdk",
        peers=("curl, qemu-img",),
        targets=[Target(0.7, "of", ("curl, qemu-img",), "curl, then qemu-img convert")],
    ),
    Row(
        "raw, sparse", "raw",
        stages=("download", "write", "sha256"),
        peers=("curl|dd", "coreos-installer", "bmaptool"),
        targets=[Target(1.15, "slowest", label="the slowest of download, write and sha256")],
    ),
    Row("raw with its bmap", "raw", ours="ours-bmap", stages=("download", "write", "sha256"), peers=("bmaptool",)),
]

# Group, without and with read-back.
READ_BACK = [("zstd", "ours", "ours-read-back"), ("packed", "ours", "ours-read-back")]
# On top of the write, as a share of it.
READ_BACK_SHARE = 0.15
# Beside the window or block the stream declares.
RSS_BYTES = 64 << 20
# Seconds per GiB, the most over the least, less one.
LINEAR = 0.10
# "Zero frames cost nothing": a packed image of 64 GiB with 48 MiB of data takes at most this share of the time that a
# decoder alone needs for its zeros.
ZEROS_SHARE = 0.05
