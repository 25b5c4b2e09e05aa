use super::*;

/// A cache with room for this many one-block entries, in a folder that exists as long as the first value.
fn cache(blocks: u64) -> (tempfile::TempDir, ExecutableCache) {
    let folder = tempfile::tempdir().unwrap();
    let cache = ExecutableCache::new(folder.path().join("remat/executables"), blocks * BLOCK);
    (folder, cache)
}

/// Sets the time of an entry, in hours before now.
fn age(cache: &ExecutableCache, key: u128, hours: u64) {
    let file = File::open(cache.path(key)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
}

#[test]
fn what_is_put_is_there() {
    let (_folder, cache) = cache(100);
    assert_eq!((cache.get(1), cache.usage()), (None, Usage::default()));
    cache.put(1, b"one");
    cache.put(u128::MAX, &[7; 5000]);
    cache.put(2, b"");
    assert_eq!(cache.get(1).as_deref(), Some(&b"one"[..]));
    assert_eq!(cache.get(u128::MAX).as_deref(), Some(&[7; 5000][..]));
    assert_eq!(cache.get(2).as_deref(), Some(&b""[..]));
    assert_eq!(cache.get(3), None);
    assert_eq!(cache.usage(), Usage { entries: 3, bytes: 4 * BLOCK });
    cache.put(1, b"another");
    assert_eq!(cache.get(1).as_deref(), Some(&b"another"[..]));
    assert_eq!(cache.clear().unwrap(), Usage { entries: 3, bytes: 4 * BLOCK });
    assert_eq!((cache.get(1), cache.usage()), (None, Usage::default()));
}

/// Also an entry that another program's file has replaced.
#[test]
fn damaged_entries_are_not_there() {
    let (_folder, cache) = cache(100);
    cache.put(1, b"one");
    cache.put(2, b"two");
    fs::copy(cache.path(2), cache.path(1)).unwrap();
    assert_eq!(cache.get(1), None);
    fs::write(cache.path(2), b"").unwrap();
    assert_eq!(cache.get(2), None);
    cache.put(1, b"one");
    assert_eq!(cache.get(1).as_deref(), Some(&b"one"[..]));
}

#[test]
fn the_oldest_use_is_deleted_first() {
    let (_folder, cache) = cache(8);
    (0..8).for_each(|key| cache.put(key, b"x"));
    (0..8).for_each(|key| age(&cache, key, 20 - key as u64));
    // The first was written first, but is used later.
    cache.get(0).unwrap();
    cache.put(8, b"x");
    let left: Vec<u128> = (0..9).filter(|&key| cache.get(key).is_some()).collect();
    assert_eq!(left, [0, 3, 4, 5, 6, 7, 8], "an eighth is free");
    // A process that knows nothing about the others notices.
    let other = ExecutableCache::new(cache.folder(), 4 * BLOCK);
    (0..9).filter(|key| left.contains(key)).for_each(|key| age(&cache, key, 20 - key as u64));
    other.put(9, b"x");
    assert_eq!((0..10).filter(|&key| other.get(key).is_some()).collect::<Vec<_>>(), [7, 8, 9]);
}

#[test]
fn what_is_larger_than_the_limit_is_not_kept() {
    let (_folder, cache) = cache(2);
    cache.put(1, b"x");
    cache.put(2, &[0; 3 * BLOCK as usize]);
    assert_eq!(cache.get(2), None);
    assert_eq!(cache.get(1).as_deref(), Some(&b"x"[..]));
}

/// Even if it leaves less than the eighth that should be free, and if the clock makes others newer.
#[test]
fn what_was_just_written_stays() {
    let (_folder, cache) = cache(16);
    (0..4).for_each(|key| cache.put(key, b"x"));
    (0..4).for_each(|key| {
        let file = File::open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    });
    cache.put(4, &[7; 15 * BLOCK as usize]);
    assert_eq!(cache.get(4).as_deref(), Some(&[7; 15 * BLOCK as usize][..]));
    assert_eq!(cache.usage(), Usage { entries: 1, bytes: 16 * BLOCK });
}

/// Each process notices what the other wrote, up to a 64th of the limit.
#[test]
fn the_limit_holds_for_several_processes() {
    let (_folder, one) = cache(128);
    let other = ExecutableCache::new(one.folder(), one.limit());
    for key in 0..150 {
        one.put(2 * key, b"x");
        other.put(2 * key + 1, b"x");
        assert!(one.usage().bytes <= (128 + 2 * 128 / 64) * BLOCK, "{:?}", one.usage());
    }
}

/// Files of other programs stay, and so do files that another process is writing; those left by an ended process are deleted.
#[test]
fn only_files_of_the_cache_are_deleted() {
    let (_folder, cache) = cache(2);
    cache.put(1, b"x");
    let names = ["README", "0123", "not-hexadecimal-but-32-characters"].map(String::from);
    let beside = [".bak", ".1", ".1.", ".1.x"].map(|ending| format!("{:032x}{ending}", 1));
    let foreign: Vec<PathBuf> = names.into_iter().chain(beside).map(|name| cache.folder().join(name)).collect();
    foreign.iter().for_each(|path| fs::write(path, [0; 100]).unwrap());
    let [begun, left] = [5, 6].map(|number| cache.folder().join(format!("{:032x}.99.{number}", 3)));
    [&begun, &left].iter().for_each(|path| fs::write(path, [0; 100]).unwrap());
    File::open(&left).unwrap().set_modified(SystemTime::now() - 2 * WRITING).unwrap();
    ExecutableCache::new(cache.folder(), 2 * BLOCK).put(2, b"x");
    assert!(!left.exists() && begun.exists());
    cache.clear().unwrap();
    assert!(!begun.exists());
    assert!(foreign.iter().all(|path| path.exists()));
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = ExecutableCache::new(file.join("executables"), 1 << 20);
    cache.put(1, b"x");
    assert_eq!((cache.get(1), cache.usage(), cache.clear().unwrap()), (None, Usage::default(), Usage::default()));
}

#[test]
fn threads_that_write_one_entry_leave_a_whole_one() {
    let (_folder, cache) = cache(1000);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let cache = &cache;
            scope.spawn(move || {
                for _ in 0..50 {
                    cache.put(1, &[thread; 10_000]);
                    let read = cache.get(1).unwrap();
                    assert!(read.len() == 10_000 && read.iter().all(|byte| *byte == read[0]));
                }
            });
        }
    });
    assert_eq!(cache.usage().entries, 1);
    assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 1);
}

#[test]
fn limits_that_are_not_sizes_are_errors() {
    assert_eq!((limit("0").unwrap(), limit("1.5GiB").unwrap()), (0, 3 << 29));
    let error = limit("much").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(
        error.to_string(),
        "cache: REMAT_CACHE_SIZE is 'much' and must be a number of bytes such as 500MiB or 10GiB, or 0"
    );
}
