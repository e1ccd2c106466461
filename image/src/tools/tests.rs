use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;
use crate::kernel::testing::FakeTree;

/// An ELF header of x86-64, without any segment.
fn static_elf() -> Vec<u8> {
    let mut elf = vec![0u8; 64];
    elf[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    (elf[16], elf[18], elf[52], elf[54], elf[58]) = (2, 62, 64, 56, 64);
    elf
}

struct Site {
    directory: tempfile::TempDir,
    fake: FakeTree,
    programs: BTreeSet<String>,
    files: BTreeSet<String>,
    modules: BTreeSet<String>,
}

impl Site {
    /// With the shell of this machine as a package, and its C library as another.
    fn new() -> Self {
        let fake = FakeTree::new("6.1")
            .module("kernel/dm-mod.ko", "name=dm_mod\0")
            .module("kernel/dm-crypt.ko", "name=dm_crypt\0depends=dm-mod\0");
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("worker"), static_elf()).unwrap();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        // Of the modules of every layer, this kernel lacks one.
        let modules = set(&["dm_crypt", "raid456"]);
        let site = Self { directory, fake, programs: set(&["sh"]), files: BTreeSet::new(), modules };
        site.copy("/bin/sh", "dash_0.5/usr/bin/sh");
        let shell = elf::read(&fs::read("/bin/sh").unwrap()).unwrap().unwrap();
        let loader = shell.loader.unwrap();
        site.copy(&loader, &format!("libc6_2.36{loader}"));
        for name in ["ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1", "libm.so.6"] {
            site.copy(&format!("/lib/x86_64-linux-gnu/{name}"), &format!("libc6_2.36/lib/x86_64-linux-gnu/{name}"));
        }
        site
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn copy(&self, from: &str, to: &str) {
        let to = self.at("packages").join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }

    fn pack(&self, output: &str) -> Result<Packed, ToolsError> {
        let tree = KernelTree::open(self.fake.path(), None).unwrap();
        let (worker, packages) = (self.at("worker"), self.at("packages"));
        let recipe = Recipe {
            tree: &tree,
            worker: &worker,
            packages: Some(&packages).filter(|packages| packages.exists()).map(PathBuf::as_path),
            programs: &self.programs,
            files: &self.files,
            modules: &self.modules,
        };
        pack(&recipe, &self.at(output))
    }
}

#[test]
fn the_same_input_gives_the_same_layer() {
    let site = Site::new();
    let packed = site.pack("one").unwrap();
    // Another modification time must not change the result.
    fs::File::options().append(true).open(site.at("worker")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(site.pack("two").unwrap(), packed);
    assert_eq!(fs::read(site.at("one")).unwrap(), fs::read(site.at("two")).unwrap());
    let left = fs::read_dir(site.directory.path()).unwrap().count();
    assert_eq!(left, 4, "worker, packages, one and two");
}

#[test]
fn a_layer_holds_exactly_what_its_programs_need() {
    let site = Site::new();
    let packed = site.pack("layer").unwrap();
    let out = site.at("out");
    run(
        "unsquashfs",
        ["-quiet".as_ref(), "-no-progress".as_ref(), "-d".as_ref(), out.as_os_str(), site.at("layer").as_os_str()],
    )
    .unwrap();
    let text = fs::read(out.join(ToolsManifest::PATH)).unwrap();
    assert_eq!(serde_json::from_slice::<ToolsManifest>(&text).unwrap(), packed.manifest);
    assert_eq!((packed.manifest.kernel.as_str(), packed.manifest.architecture.as_str()), ("6.1", "x86_64"));
    let revision = ToolsManifest::PROTOCOL;
    let made_for = fs::read_to_string(out.join(ToolsManifest::MADE_FOR)).unwrap();
    assert_eq!((made_for, packed.manifest.protocol), (format!("x86_64, kernel 6.1, protocol {revision}\n"), revision));
    assert_eq!(packed.manifest.modules, ["dm_crypt", "dm_mod"]);
    let [program] = &packed.manifest.programs[..] else { panic!("{:?}", packed.manifest) };
    assert_eq!(
        (program.path.as_str(), program.package.as_str(), program.version.as_str()),
        ("/usr/sbin/sh", "dash", "0.5")
    );
    for path in ["sbin/sh", "lib/x86_64-linux-gnu/libc.so.6", "lib/modules/6.1/kernel/dm-mod.ko", "target", "proc"] {
        assert!(out.join(path).exists(), "{path} is missing");
    }
    assert!(!out.join("lib/x86_64-linux-gnu/libm.so.6").exists(), "no program needs it");
    let worker = out.join(ToolsManifest::WORKER).metadata().unwrap();
    assert_eq!((worker.uid(), worker.permissions().mode() & 0o7777), (0, 0o755));
    assert_eq!(fs::read_link(out.join("etc/resolv.conf")).unwrap(), Path::new("/run/resolv.conf"));
    // The shell runs with nothing but the layer.
    if nix::unistd::geteuid().is_root() {
        let ran =
            run("chroot", [out.as_os_str(), "/sbin/sh".as_ref(), "-c".as_ref(), "echo it runs".as_ref()]).unwrap();
        assert_eq!(ran.stdout, b"it runs\n");
    }
}

#[test]
fn what_is_missing_is_named_and_nothing_is_made() {
    let mut site = Site::new();
    site.programs.insert("mdadm".into());
    site.files.insert("etc/mke2fs.conf".into());
    fs::remove_file(site.at("packages/libc6_2.36/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
    let error = site.pack("layer").unwrap_err().to_string();
    let all = [
        "the program mdadm", "the library libc.so.6, which /usr/bin/sh needs", "the file etc/mke2fs.conf", "--packages",
    ];
    assert!(all.iter().all(|one| error.contains(one)), "{error}");
    site.programs.remove("mdadm");
    fs::write(site.at("packages/dash_0.5/usr/bin/sh"), "#!/bin/perl\n").unwrap();
    let error = site.pack("layer").unwrap_err().to_string();
    assert!(error.contains("sh is a script"), "{error}");
    assert!(!site.at("layer").exists());
}

#[test]
fn the_worker_alone_needs_no_packages() {
    let mut site = Site::new();
    fs::remove_dir_all(site.at("packages")).unwrap();
    let error = site.pack("layer").unwrap_err().to_string();
    assert!(error.contains("the program sh"), "{error}");
    site.programs.clear();
    assert!(site.pack("layer").unwrap().manifest.programs.is_empty());
}

#[test]
fn a_worker_that_needs_a_loader_is_refused() {
    let site = Site::new();
    for worker in [fs::read("/bin/sh").unwrap(), b"#!/bin/sh\n".to_vec()] {
        fs::write(site.at("worker"), worker).unwrap();
        let error = site.pack("layer").unwrap_err();
        assert!(matches!(error, ToolsError::Contents(ContentsError::Worker(_))), "{error}");
    }
}

#[test]
fn a_module_that_the_kernel_lacks_is_named() {
    let mut site = Site::new();
    site.modules.insert("dm-cript".into());
    let error = site.pack("layer").unwrap_err();
    assert!(matches!(error, ToolsError::Resolve(_)) && error.to_string().contains("dm_cript"), "{error}");
    assert!(!site.at("layer").exists());
}

#[test]
fn files_stay_inside_the_layer() {
    let mut site = Site::new();
    let own = site.at("own");
    fs::write(&own, "of the build host").unwrap();
    let inside = format!("conf_1{}", own.display());
    fs::create_dir_all(site.at("packages").join(&inside).parent().unwrap()).unwrap();
    fs::write(site.at("packages").join(&inside), "of the package").unwrap();
    site.files.insert(own.display().to_string());
    // Below /tmp it is refused, because that is a link in the layer.
    drop(site.pack("layer"));
    assert_eq!(fs::read(&own).unwrap(), b"of the build host");
    site.files = ["../../etc/passwd".to_owned()].into();
    let error = site.pack("outside").unwrap_err().to_string();
    assert!(error.contains("the file ../../etc/passwd"), "{error}");
}
