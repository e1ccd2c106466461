//! Everything that touches a block device: listing and choosing disks, receipts, and writing an image so that at
//! whatever instant the power goes the disk is old, unbootable, or verified-new.
//!
//! Usable alone: this crate does not depend on a coordinator or on gRPC. [`write_image`] is the whole job; [`install`]
//! the same on any [`BlockDevice`] from any [`ImageSource`]; [`judge`] tells what firmware would make of a disk.

mod authorise;
mod blank;
mod buffer;
mod by_id;
mod commands;

mod content;
mod contents;
mod decode;
mod defect;
mod device;
mod divide;
mod error;
mod exact;
mod forgiving;
#[doc(hidden)]
pub mod fuzzing;
mod gpt;
mod grow;
mod health;
mod index;
mod inuse;
pub mod judge;
mod lend;
mod list;
mod memory;
mod pipeline;
mod proof;
mod receipt;
mod request;
mod select;
mod select_error;
mod signature;
mod source;
mod surface;
mod sys;
mod sysfs;
mod teardown;
mod wipe;
mod write;

pub use blank::what_is_there;
pub use content::Mistake;
pub use contents::read_contents;
pub use defect::Defect;
pub use device::{BlockDevice, ReadAt, RealDevice};
pub use divide::{
    DivideRequest, Standing, check_free, divide, divided, hold_back, is_divided, may_divide, show_partitions,
};
pub use error::{DiskError, WriteError};
pub use gpt::{
    Entry, Header, KeptPartition, NewPartition, NewTable, RECEIPT_TYPE, Table, TableError, TableKind, find_kept,
};
pub use grow::{GrowError, Grown, grow_on, grow_partition};
pub use health::read_health;
pub use index::{
    Chunk, ChunkKind, Frame, Index, IndexError, MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_INDEX_BYTES, MIN_CHUNK_BYTES,
    SeekTable, SeekTableError, StoredAs,
};
pub use inuse::holders_of;
// Short here, where all is about images; and a source is what one is read from.
pub use landfall_api::{
    ImageAccess as Access, ImageAuthorization as Authorization, ImageFormat as Format, ImageProof as Proof,
    ImageSource as Image, SignatureSpec as Signature,
};
pub use lend::{LendRequest, Lent, lend, take_back};
pub use list::{device_path, disk_at, is_disk_name, list_disks};
pub use memory::{available as available_memory, total as total_memory};
pub use pipeline::{
    BackupPlaced, Check, Committed, Content, ContentOrder, Expectation, Order, TablePlaced, Verified, clear_device,
    divide_device, finish_device, install, place_backup, place_lba0, place_table, with_content,
};
pub use proof::{DetachedSignature, Resolved, SignatureVerifier, resolve as resolve_proof};
pub use receipt::{PLACE as RECEIPT_PLACE, kept_partitions, read_mark, read_receipt};
pub use request::{
    Authority, CancelFlag, Installed, LeaseGuard, LogLevel, Observer, ReceiptIntent, SelectionGuard, Unobserved,
    WipeRequest, WriteOutcome, WriteRequest,
};
pub use select::Disk;
pub use select_error::{Candidate, SelectError};
pub use source::{
    Call, CallAnswer, CallError, ContainerImage, ImageSource, ProvenFile, RootLayer, container_image, go_architecture,
    image_at, open as open_source, open_file, root_layers, shown_name,
};
pub use surface::{Surface, read_surface};
pub use teardown::{
    Active, ActiveDevice, ActiveMount, ActivePool, Stop, StopError, active_devices, lacking_arrays, stop_all_on,
};
pub use wipe::{may_wipe, test_disk, wait_to_wipe, wipe_disk};
pub use write::{may_write, write_image};
