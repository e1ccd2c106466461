//! qemuimg2disk: an image of any format that qemu-img reads.

use super::{Context, List, Source, image2disk};

pub(super) fn add(source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    let message = "writeImage reads raw images, plain or compressed, qcow2 and streamOptimized vmdk; convert other formats with \
        qemu-img";
    context.report.note(source.line, message);
    image2disk::write(source, list, context)
}
