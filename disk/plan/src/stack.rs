//! What stands on the partitions: arrays, encryption, volume groups, file systems.

use std::collections::BTreeMap;

use landfall_api::{Content, FileSystem, RaidSpec, SizeSpec, VolumeGroupSpec};

use crate::error::PlanError;
use crate::mounts::{Mount, Source, Swap};
use crate::partitions::{Context, DiskPlan, Origin};
use crate::step::{Device, EXTENT, FileSystemId, GroupMember, RaidMetadata, Step, VolumeSize};

const MIB: u64 = 1 << 20;
/// The least header of LUKS2 as cryptsetup makes it by itself, bytes (cryptsetup-luksFormat(8), `--offset`).
const LUKS_HEADER: u64 = 16 * MIB;
/// A chunk of a striped array as mdadm makes it, bytes (mdadm(8), `--chunk`).
const CHUNK: u64 = 512 << 10;

/// A device, and how many bytes it has at least: mdadm decides by itself how much it reserves.
#[derive(Debug, Clone)]
struct Block {
    device: Device,
    size: u64,
    sector: u32,
    /// A stripe of the array under it, bytes: what stands on it is aligned to this; 0: there is none.
    stripe: u64,
    /// What people call it.
    name: String,
}

/// Collects what stands on the partitions.
pub(crate) struct Stack<'a> {
    context: Context<'a>,
    pub(crate) steps: Vec<Step>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) swaps: Vec<Swap>,
    /// Opened devices: name, and the identity of what is encrypted.
    pub(crate) opened: Vec<(String, uuid::Uuid)>,
    /// By the name in the layout; of partitions one on each disk.
    members: BTreeMap<String, Vec<Block>>,
    /// File systems are made when all devices stand.
    formats: Vec<Step>,
}

impl<'a> Stack<'a> {
    /// On these disks; `of` says for each which item of the layout it belongs to.
    pub(crate) fn build(context: Context<'a>, disks: &[DiskPlan], of: &[usize]) -> Result<Self, PlanError> {
        let mut stack = Self {
            context,
            steps: Vec::new(),
            mounts: Vec::new(),
            swaps: Vec::new(),
            opened: Vec::new(),
            members: BTreeMap::new(),
            formats: Vec::new(),
        };
        let layout = context.layout;
        for ((index, disk), item) in disks.iter().enumerate().zip(of) {
            let Some(item) = layout.disks.get(*item) else { continue };
            stack.partitions(index, disk, item)?;
        }
        for raid in &layout.raids {
            stack.raid(raid)?;
        }
        for group in &layout.volume_groups {
            stack.group(group)?;
        }
        stack.steps.append(&mut stack.formats);
        Ok(stack)
    }

    fn partitions(
        &mut self, index: usize, disk: &DiskPlan, item: &'a landfall_api::DiskLayoutSpec,
    ) -> Result<(), PlanError> {
        let of_origin = |origin: Origin| disk.partitions.iter().filter(move |part| part.origin == origin);
        // Both are in the layout's order, and numbers of the new ones rise in it.
        let mut new = of_origin(Origin::New);
        for part in &item.partitions {
            let found = match part.preserve {
                true => of_origin(Origin::Kept).find(|kept| kept.name == part.name()),
                false => new.next(),
            };
            let Some(found) = found else { continue };
            let device = Device::Partition { disk: index, number: found.number };
            let content = self.context.layout.of_partition(part);
            if part.preserve {
                let format = content.format.unwrap_or(FileSystem::None);
                self.mount(&device, Source::PartUuid(found.guid), format, content);
                continue;
            }
            let bytes = found.bytes(disk.sector);
            let name = format!("partition {} of disk {}", found.name, disk.disk.name);
            let block = Block { device, size: bytes.end - bytes.start, sector: disk.sector, stripe: 0, name };
            let block = self.encrypted(block, content, &found.name)?;
            if self.context.layout.is_member(part.name()) {
                self.members.entry(part.name().to_owned()).or_default().push(block);
            } else {
                self.content(&block, content, &format!("disk/{index}/{}", part.name()))?;
            }
        }
        Ok(())
    }

    /// The members of these names, in order.
    fn blocks(&self, from: &[String]) -> Vec<Block> {
        from.iter().flat_map(|name| self.members.get(name).cloned().unwrap_or_default()).collect()
    }

    fn raid(&mut self, raid: &'a RaidSpec) -> Result<(), PlanError> {
        let members = self.blocks(&raid.from);
        let is_esp = self.context.layout.is_esp(raid);
        let metadata = if is_esp { RaidMetadata::End } else { RaidMetadata::Start };
        if is_esp {
            // The array has the larger sectors, and firmware reads a member with its disk's.
            same_sectors(&members, || format!("array {}", raid.name))?;
        }
        let smallest = members.iter().map(|member| member.size).min().unwrap_or(0);
        let each = smallest.saturating_sub(reserved(smallest)) / CHUNK * CHUNK;
        let count = members.len() as u64;
        let data = match raid.level {
            0 => count,
            5 => count.saturating_sub(1),
            6 => count.saturating_sub(2),
            10 => count / 2,
            _ => 1,
        };
        self.steps.push(Step::Raid {
            name: raid.name.clone(),
            level: raid.level,
            metadata,
            members: members.iter().map(|member| member.device.clone()).collect(),
            uuid: self.context.ids.of(&format!("raid/{}", raid.name)),
        });
        let block = Block {
            device: Device::Raid(raid.name.clone()),
            size: each.saturating_mul(data),
            sector: members.iter().map(|member| member.sector).max().unwrap_or(512),
            stripe: if raid.level == 1 { 0 } else { data.saturating_mul(CHUNK) },
            name: format!("array {}", raid.name),
        };
        let content = self.context.layout.of_raid(raid);
        let block = self.encrypted(block, content, &raid.name)?;
        if self.context.layout.is_member(&raid.name) {
            self.members.insert(raid.name.clone(), vec![block]);
            return Ok(());
        }
        self.content(&block, content, &format!("raid/{}", raid.name))
    }

    fn group(&mut self, group: &'a VolumeGroupSpec) -> Result<(), PlanError> {
        let ids = self.context.ids;
        let members = self.blocks(&group.from);
        // LVM refuses others.
        same_sectors(&members, || format!("volume group {}", group.name))?;
        // LVM's own metadata take the first MiB.
        let head = |block: &Block| aligned(MIB, block.stripe);
        let extents: u64 = members.iter().map(|block| block.size.saturating_sub(head(block)) / EXTENT).sum();
        let sector = members.iter().map(|block| block.sector).max().unwrap_or(512);
        let physical = |(n, block): (usize, &Block)| {
            let uuid = ids.of(&format!("group/{}/{n}", group.name));
            GroupMember { device: block.device.clone(), uuid, start: head(block) }
        };
        self.steps.push(Step::Group {
            name: group.name.clone(),
            members: members.iter().enumerate().map(physical).collect(),
        });
        let mut free = extents;
        let no_room = |name: &str, needs: u64, free: u64| PlanError::NoRoom {
            whole: format!("volume group {}", group.name),
            name: format!("volume {name}"),
            needs: needs.saturating_mul(EXTENT),
            free: free * EXTENT,
        };
        let mut sizes = Vec::new();
        for volume in &group.volumes {
            let needs = match volume.size() {
                SizeSpec::Bytes(bytes) => bytes.div_ceil(EXTENT),
                SizeSpec::Percent(n) => ((u128::from(extents) * u128::from(n) / 100) as u64).max(1),
                SizeSpec::Rest => {
                    sizes.push(None);
                    continue;
                }
            };
            free = free.checked_sub(needs).ok_or_else(|| no_room(&volume.name, needs, free))?;
            sizes.push(Some(needs));
        }
        // What takes the rest comes last: only then is the rest what is left.
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|n| sizes[*n].is_none());
        for n in order {
            let (volume, size) = (&group.volumes[n], sizes[n]);
            if size.is_none() && free == 0 {
                return Err(no_room(&volume.name, 1, 0));
            }
            self.steps.push(Step::Volume {
                group: group.name.clone(),
                name: volume.name.clone(),
                size: size.map_or(VolumeSize::Rest, VolumeSize::Extents),
            });
            let whole = format!("{}-{}", group.name, volume.name);
            let block = Block {
                device: Device::Volume { group: group.name.clone(), name: volume.name.clone() },
                size: size.unwrap_or(free) * EXTENT,
                sector,
                stripe: 0,
                name: format!("volume {}/{}", group.name, volume.name),
            };
            let block = self.encrypted(block, volume.content(), &whole)?;
            self.content(&block, volume.content(), &format!("volume/{}/{}", group.name, volume.name))?;
        }
        Ok(())
    }

    /// The device itself, or what is opened on it.
    fn encrypted(&mut self, block: Block, content: Content<'_>, whole: &str) -> Result<Block, PlanError> {
        let Some(encrypt) = content.encrypt else { return Ok(block) };
        let offset = aligned(LUKS_HEADER, block.stripe);
        let least = offset + MIB;
        if block.size < least {
            return Err(PlanError::TooSmall { name: block.name, what: "LUKS", size: block.size, least });
        }
        let name = encrypt.name.clone().unwrap_or_else(|| format!("crypt-{whole}"));
        let uuid = self.context.ids.of(&format!("luks/{name}"));
        let key = encrypt.key.clone();
        self.steps.push(Step::Encrypt { device: block.device, name: name.clone(), key, uuid, offset });
        self.opened.push((name.clone(), uuid));
        Ok(Block { device: Device::Opened(name), size: block.size - offset, ..block })
    }

    fn content(&mut self, block: &Block, content: Content<'_>, thing: &str) -> Result<(), PlanError> {
        let Some(format) = content.format else { return Ok(()) };
        let least = least(format, block.sector);
        if block.size < least {
            return Err(PlanError::TooSmall { name: block.name.clone(), what: format.name(), size: block.size, least });
        }
        let thing = format!("format/{thing}");
        let id = match format {
            FileSystem::Vfat => FileSystemId::Serial(self.context.ids.short(&thing)),
            _ => FileSystemId::Uuid(self.context.ids.of(&thing)),
        };
        let label = content.label.map(str::to_owned);
        self.formats.push(Step::Format { device: block.device.clone(), format, id, label });
        if !content.subvolumes.is_empty() {
            let mut names: Vec<String> = content.subvolumes.iter().map(|sub| sub.name.clone()).collect();
            names.sort();
            self.formats.push(Step::Subvolumes { device: block.device.clone(), names });
        }
        self.mount(&block.device, Source::FileSystem(id), format, content);
        Ok(())
    }

    fn mount(&mut self, device: &Device, source: Source, format: FileSystem, content: Content<'_>) {
        let esp = content.mount.is_some() && format == FileSystem::Vfat;
        // Keys of systemd-boot and secrets of an image stand there; FAT has no modes of its own.
        let usual = esp.then_some("umask=0077");
        let options = |options: Option<&str>| options.or(usual).map(str::to_owned);
        if format == FileSystem::Swap {
            self.swaps.push(Swap { source, options: content.options.map(str::to_owned) });
            return;
        }
        let mount = |at: &str, options: Option<String>, subvolume: Option<String>| Mount {
            device: device.clone(),
            source,
            at: at.to_owned(),
            format,
            options,
            subvolume,
        };
        self.mounts.extend(content.mount.map(|at| mount(at, options(content.options), None)));
        let subvolumes = content.subvolumes.iter().filter_map(|sub| Some((sub, sub.mount.as_deref()?)));
        self.mounts
            .extend(subvolumes.map(|(sub, at)| mount(at, options(sub.options.as_deref()), Some(sub.name.clone()))));
    }
}

/// The first place at or behind `least` that is a multiple of a stripe; 0: any is.
fn aligned(least: u64, stripe: u64) -> u64 {
    if stripe == 0 { least } else { least.next_multiple_of(stripe) }
}

fn same_sectors(members: &[Block], whole: impl Fn() -> String) -> Result<(), PlanError> {
    let sizes = || members.iter().map(|member| member.sector);
    match (sizes().min(), sizes().max()) {
        (Some(one), Some(other)) if one != other => Err(PlanError::MixedSectors { whole: whole(), one, other }),
        _ => Ok(()),
    }
}

/// At most this much of a member of so many bytes mdadm keeps for itself: metadata, bitmap, and room for a later change of shape
/// (mdadm's super1.c: 128 MiB, halved until it is a 1024th of the member or 2 MiB; each part is rounded up to 1 MiB).
fn reserved(size: u64) -> u64 {
    (size / 1024).clamp(2 * MIB, 128 * MIB) + 4 * MIB
}

/// The least bytes on which its program makes such a file system.
const fn least(format: FileSystem, sector: u32) -> u64 {
    match format {
        // A journal takes 4 MiB at least: mke2fs(8), `-J size`.
        FileSystem::Ext4 => 8 * MIB,
        // xfsprogs 5.19 and newer: mkfs.xfs(8).
        FileSystem::Xfs => 300 * MIB,
        // btrfs-progs 6.2 refuses less than 109 MiB where data and metadata are apart.
        FileSystem::Btrfs => 128 * MIB,
        // FAT32 has 65525 clusters at least (Microsoft's FAT specification, section 3.5), of one sector or more.
        FileSystem::Vfat if sector > 512 => 264 * MIB,
        FileSystem::Vfat => 40 * MIB,
        FileSystem::Swap | FileSystem::None => MIB,
    }
}
