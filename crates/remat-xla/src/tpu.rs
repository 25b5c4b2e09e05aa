//! Whether a TPU is in this machine, and the environment variable with which users tell its library.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// The environment variable with the kind of TPU, which libtpu reads.
pub(crate) const KIND: &str = "TPU_ACCELERATOR_TYPE";

/// The PCI vendor of TPUs, which also has network cards and disks.
const GOOGLE: &str = "0x1ae0";

/// The PCI devices that are TPUs, v2 to v7, as JAX lists them.
const TPUS: [&str; 7] = ["0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"];

/// Whether a TPU is in this machine: by its files in `/dev`, or on the PCI bus, where JAX looks for it too. `root` is the root of the file
/// system.
pub(crate) fn is_there(root: &Path) -> bool {
    let names =
        |folder: &str| fs::read_dir(root.join(folder)).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_numbered =
        |name: &OsString, prefix: &str| name.to_str().and_then(|name| name.strip_prefix(prefix)).is_some_and(is_number);
    let id = |device: &OsString, file: &str| {
        fs::read_to_string(root.join("sys/bus/pci/devices").join(device).join(file)).unwrap_or_default()
    };
    names("dev").any(|name| is_numbered(&name, "accel"))
        || names("dev/vfio").any(|name| is_numbered(&name, ""))
        || names("sys/bus/pci/devices")
            .any(|name| id(&name, "vendor").trim() == GOOGLE && TPUS.contains(&id(&name, "device").trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpus_are_found_by_their_files() {
        let found = |path: &str, text: &str| {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            is_there(root.path())
        };
        assert!(found("dev/accel0", "") && found("dev/vfio/13", ""));
        let on_bus = |vendor: &str, device: &str| {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("sys/bus/pci/devices/0000:00:04.0");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vendor"), vendor).unwrap();
            fs::write(folder.join("device"), device).unwrap();
            is_there(root.path())
        };
        assert!(on_bus("0x1ae0\n", "0x0063\n"));
        // A network card, and a device of another vendor.
        assert!(!on_bus("0x1ae0\n", "0x0042\n") && !on_bus("0x10de\n", "0x0063\n"));
        assert!(!found("dev/vfio/vfio", "") && !found("dev/accel/accel0", "") && !found("dev/null", ""));
        assert!(!found("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1ae0\n"));
    }
}
