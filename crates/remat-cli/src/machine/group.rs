//! Memory limits of Linux control groups, such as those of containers and batch systems.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory of a control group.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Memory {
    /// The most bytes that its processes may use.
    pub(super) limit: usize,
    /// The bytes that they use, without cached files, which are evicted when memory is short.
    pub(super) used: usize,
}

/// The files of one version of control groups.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// The lines of `memory.stat` with the bytes of cached files.
    files: [&'static str; 2],
}

const FIRST: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};
const SECOND: Names = Names { limit: "memory.max", used: "memory.current", files: ["inactive_file ", "active_file "] };

/// The groups that limit the memory of this process, from its own to the outermost visible one; `root` is the root of the file system.
pub(super) fn of_this_process(root: &Path) -> Vec<Memory> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounted = root.join("sys/fs/cgroup");
    let mut found = Vec::new();
    for line in groups.lines() {
        // A number, the kinds of resources, and the path of the group; version 2 has one path for all kinds.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (top, names) = match kinds {
            "" => (mounted.clone(), SECOND),
            kinds if kinds.split(',').any(|kind| kind == "memory") => (mounted.join("memory"), FIRST),
            _ => continue,
        };
        // In a container the path may be that of the host, and the container's group the outermost one that is mounted.
        let own: PathBuf = top.join(path.trim_start_matches('/'));
        found.extend(own.ancestors().take_while(|group| group.starts_with(&top)).filter_map(|group| names.read(group)));
    }
    found
}

impl Names {
    /// The memory of a group; `None` if there is no limit.
    fn read(&self, group: &Path) -> Option<Memory> {
        let text = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let limit = number(&text(self.limit)?)?;
        let used = text(self.used).and_then(|text| number(&text)).unwrap_or(0);
        let stat = text("memory.stat").unwrap_or_default();
        let bytes = |line: &str| self.files.iter().find_map(|name| number(line.strip_prefix(name)?));
        let files: usize = stat.lines().filter_map(bytes).sum();
        Some(Memory { limit, used: used.saturating_sub(files) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(files: &[(&str, &str)]) -> Vec<(usize, usize)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        of_this_process(root.path()).iter().map(|memory| (memory.limit, memory.used)).collect()
    }

    #[test]
    fn groups_of_the_second_version_are_within_each_other() {
        let files = [
            ("proc/self/cgroup", "0::/jobs/7\n"),
            ("sys/fs/cgroup/jobs/7/memory.max", "8000\n"),
            ("sys/fs/cgroup/jobs/7/memory.current", "3000\n"),
            ("sys/fs/cgroup/jobs/7/memory.stat", "anon 1\nactive_file 300\ninactive_file 700\n"),
            ("sys/fs/cgroup/jobs/memory.max", "6000\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
        ];
        assert_eq!(groups(&files), [(8000, 2000), (6000, 0)]);
    }

    /// The path is that of the host, and the mounted group is the container's.
    #[test]
    fn the_group_of_a_container_is_the_one_that_is_mounted() {
        let files = [
            ("proc/self/cgroup", "5:devices:/docker/a\n4:cpu,memory:/docker/a\n1:name=systemd:/docker/a\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "700"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n"),
        ];
        assert_eq!(groups(&files), [(5000, 500)]);
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        assert_eq!(groups(&[]), []);
        assert_eq!(groups(&[("proc/self/cgroup", "0::/a\nnonsense\n")]), []);
    }
}
