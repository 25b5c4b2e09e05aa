//! `remat cache` as a user runs it.

mod common;

use std::path::Path;
use std::process::{Command, Output};

fn cache(folder: &Path, command: &str, size: &str) -> Output {
    let mut remat = Command::new(env!("CARGO_BIN_EXE_remat"));
    remat.args(["cache", command]).env("XDG_CACHE_HOME", folder).env("REMAT_CACHE_SIZE", size).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What is said of tokens where there are none.
fn tokens(home: &Path) -> String {
    format!("0 tokenized texts, 0 B, in {}\n", home.join("remat/tokens").display())
}

#[test]
fn programs_are_counted_and_deleted() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("remat/executables");
    let of = |command| text(&cache(home.path(), command, ""));
    let there = folder.display();
    let show = format!("0 compiled programs, 0 B, in {there}, of 2.00 GiB at most (REMAT_CACHE_SIZE)\n");
    let none = tokens(home.path());
    assert_eq!(of("show"), show + &none);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{:032x}", 7)), [0; 5000]).unwrap();
    std::fs::write(folder.join("a note"), "").unwrap();
    assert!(of("show").starts_with("1 compiled program, 8.00 KiB, in "));
    assert_eq!(of("clear"), format!("deleted 1 compiled program, 8.00 KiB, in {there}\ndeleted {none}"));
    assert_eq!(of("clear"), format!("deleted 0 compiled programs, 0 B, in {there}\ndeleted {none}"));
    assert!(folder.join("a note").exists());
}

/// What was left there before is seen and deleted.
#[test]
fn a_cache_that_is_turned_off_is_cleared_too() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("remat/executables");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{:032x}", 7)), [0; 5000]).unwrap();
    let (of, there) = (|command| text(&cache(home.path(), command, "0")), folder.display());
    let none = tokens(home.path());
    let off = "(turned off by REMAT_CACHE_SIZE)";
    assert_eq!(of("show"), format!("1 compiled program, 8.00 KiB, in {there}, {off}\n{none}"));
    assert_eq!(of("clear"), format!("deleted 1 compiled program, 8.00 KiB, in {there}\ndeleted {none}"));
    assert_eq!(of("show"), format!("0 compiled programs, 0 B, in {there}, {off}\n{none}"));
}

/// Without a folder of the user, what would be kept there is not, and what needs it says which variables name it.
#[test]
fn without_a_folder_of_the_user_the_variables_are_named() {
    let at = common::folder("");
    let homeless = |args: &str| {
        let mut command = common::command(at.path(), args.split(' '));
        command.env_remove("HOME").env("XDG_CACHE_HOME", "").output().unwrap()
    };
    let why = "neither HOME nor XDG_CACHE_HOME is set\n";
    for command in ["show", "clear"] {
        let said = text(&homeless(&format!("cache {command}")));
        assert_eq!(said, format!("compiled programs and tokens are not kept: {why}"));
    }
    // A text whose tokens do not fit in memory. The file takes no place on the disk.
    std::fs::File::create(at.path().join("text.txt")).unwrap().set_len((256 << 20) + 1).unwrap();
    let flags = "--layers 1 --width 16 --heads 2 --context 12 --batch 4 --steps 1 --sample 0";
    let said = common::error(homeless(&format!("train {flags} --text text.txt")));
    assert_eq!(said, format!("error: there is no folder for the tokens of this text: {why}"));
}

#[test]
fn the_limit_is_that_of_the_environment() {
    let home = tempfile::tempdir().unwrap();
    assert!(text(&cache(home.path(), "show", "500MiB")).contains(", of 500.00 MiB at most (REMAT_CACHE_SIZE)\n"));
    let wrong = cache(home.path(), "show", "lots");
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(wrong.stderr).unwrap(),
        "error: cache: REMAT_CACHE_SIZE is 'lots' and must be a number of bytes such as 500MiB or 10GiB, or 0\n"
    );
}

#[test]
fn tokens_of_texts_are_counted_and_deleted() {
    let home = tempfile::tempdir().unwrap();
    let (text_file, folder) = (home.path().join("a.txt"), home.path().join("remat/tokens"));
    std::fs::write(&text_file, "0123456789".repeat(100)).unwrap();
    let source = remat_data::Source::open(&text_file, None).unwrap();
    remat_data::Corpus::in_shards(&source, &remat_data::Tokenizer::bytes(), &folder).unwrap();
    let [photos, killed, writing] = ["photos", ".tokensOld", ".tokensNew"].map(|name| folder.join(name));
    std::fs::create_dir(&photos).unwrap();
    let of = |command| text(&cache(home.path(), command, ""));
    let there = format!(", in {}\n", folder.display());
    let show = of("show");
    let tokens = show.lines().last().unwrap();
    assert!(tokens.starts_with("1 tokenized text, 2.") && tokens.contains(" KiB, in "), "{show}");
    assert!(of("clear").ends_with(&format!("\ndeleted {tokens}\n")));
    // What a killed process has left goes, and what is being written stays.
    for left in [&killed, &writing] {
        std::fs::create_dir(left).unwrap();
        std::fs::write(left.join("train-00000.tokens"), [0; 100]).unwrap();
    }
    let lock = std::fs::File::open(&writing).unwrap();
    lock.lock().unwrap();
    let kept = "kept 100 B, which another process is writing";
    let deleted = format!("\ndeleted 0 tokenized texts, 100 B{there}");
    let said = of("clear");
    assert!(said.ends_with(&format!("{deleted}{kept}\n")), "{said}");
    assert!(!killed.exists() && writing.exists());
    // Not by closing the file: a command that another test is starting may have it open as well for a moment.
    lock.unlock().unwrap();
    assert!(of("clear").ends_with(&deleted));
    assert!(of("show").ends_with(&format!("\n0 tokenized texts, 0 B{there}")));
    assert!(photos.exists());
}
