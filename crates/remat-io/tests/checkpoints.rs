//! Folders of checkpoints: what is in them, which are kept, and every state in which a kill or a fault can leave one.

use std::fs;
use std::path::{Path, PathBuf};

use remat::optim::{AdamW, Moments, Optimizer};
use remat::{DType, Device, Tensor, Tree, nn, random, tree};
use remat_io::{Checkpoint, CheckpointOptions, Checkpoints, Latest, Progress, Snapshot};
use remat_testkit::installed;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Config {
    width: usize,
    learning_rate: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Position {
    epoch: u32,
    offset: u64,
}

const NOW: CheckpointOptions = CheckpointOptions { keep: None, background: false };

/// A number that is not written in full by 15 digits.
const RATE: f64 = 0.1 + 0.2;

fn progress(step: u64) -> Progress<Position, Config> {
    let data = Position { epoch: 3, offset: u64::MAX };
    Progress { step, seed: u64::MAX - 1, data, config: Config { width: 3, learning_rate: RATE } }
}

fn state(step: u64) -> (nn::Linear, Moments<nn::Linear>) {
    let model = nn::Linear::init(random::key(step), 3, 2, DType::F32);
    let state = AdamW::default().init(&model);
    let state = Moments { step: Tensor::from(step as i32), mu: model.clone(), ..state };
    (model, state)
}

fn snapshot(step: u64) -> Snapshot {
    let (model, state) = state(step);
    Snapshot::new(&progress(step)).unwrap().with("model", &model).unwrap().with("optimizer", &state).unwrap()
}

/// A run with checkpoints of these steps.
fn run(steps: &[u64]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/run");
    let mut checkpoints = Checkpoints::open_with(&NOW, &path).unwrap();
    for &step in steps {
        checkpoints.save(snapshot(step)).unwrap();
    }
    checkpoints.finish().unwrap();
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).filter(|name| name != ".lock").collect();
    names.sort();
    names
}

fn bits<T: Tree>(tree: &T) -> Vec<Vec<u64>> {
    let leaf = |leaf: &Tensor| {
        let data = leaf.array().unwrap().data();
        (0..data.len()).map(|i| data.get(i).unwrap().bits()).collect()
    };
    tree::leaves(tree).iter().map(|(_, x)| leaf(x)).collect()
}

/// The step of the last checkpoint that can be read, and why others were skipped.
#[track_caller]
fn latest(path: &Path) -> (Option<u64>, Vec<String>) {
    let Latest { checkpoint, skipped } = Checkpoint::latest(path).unwrap();
    let step = checkpoint.map(|checkpoint| {
        let read = checkpoint.progress::<Position, Config>().unwrap();
        assert_eq!(read, progress(read.step));
        let like = state(0);
        assert_eq!(bits(&checkpoint.tree("model", &like.0).unwrap()), bits(&state(read.step).0));
        assert_eq!(bits(&checkpoint.tree("optimizer", &like.1).unwrap()), bits(&state(read.step).1));
        read.step
    });
    let shown = path.to_str().unwrap();
    (step, skipped.iter().map(|error| error.message().replace(shown, "RUN")).collect())
}

#[track_caller]
fn message<T>(result: remat::Result<T>, path: &Path) -> String {
    let Err(error) = result else { panic!("no error") };
    assert!(error.loc().is_some(), "{error}");
    error.message().replace(path.to_str().unwrap(), "RUN")
}

#[test]
fn what_is_written_comes_back() {
    let (_folder, path) = run(&[100, 1_000_000]);
    assert_eq!(names(&path), ["step-000100", "step-1000000"]);
    assert_eq!(names(&path.join("step-000100")), ["model.safetensors", "optimizer.safetensors", "state.json"]);
    assert_eq!(latest(&path), (Some(1_000_000), vec![]));
    let one = Checkpoint::open(path.join("step-000100")).unwrap();
    assert_eq!(one.path(), path.join("step-000100"));
    assert_eq!(one.trees().collect::<Vec<_>>(), ["model", "optimizer"]);
    assert_eq!(one.progress::<Position, Config>().unwrap(), progress(100));
    let file = "`RUN/step-000100";
    let near = message(one.tree("modle", &()), &path);
    assert_eq!(near, format!("{file}` has no tree `modle`; did you mean `model`?"));
    let other = message(one.tree("average", &()), &path);
    assert_eq!(other, format!("{file}` has no tree `average`; it has `model`, `optimizer`"));
    let wrong = message(one.progress::<Position, Position>(), &path);
    let expected = format!("{file}/state.json` has a progress of another type: missing field `epoch`");
    assert!(wrong.starts_with(&expected), "{wrong}");
    let like = nn::Linear::init(random::key(0), 2, 2, DType::F32);
    let shape = message(one.tree("model", &like), &path);
    assert_eq!(shape, format!("tensor `weight` of {file}/model.safetensors` is f32[3,2] and must be f32[2,2]"));
    // A folder that is not there has no checkpoints; neither has an empty one.
    assert_eq!(latest(&path.join("none")), (None, vec![]));
    assert_eq!(latest(&run(&[]).1), (None, vec![]));
    assert!(
        message(Checkpoint::latest(path.join("step-000100/state.json")), &path).starts_with("cannot read `RUN/step")
    );
}

#[test]
fn the_last_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for (keep, expected) in [(Some(2), 2), (Some(1), 1), (Some(0), 1), (None, 5)] {
        let path = folder.path().join(format!("{keep:?}"));
        let mut checkpoints = Checkpoints::open_with(&CheckpointOptions { keep, background: true }, &path).unwrap();
        for step in 1..=5 {
            checkpoints.save(snapshot(step)).unwrap();
        }
        checkpoints.finish().unwrap();
        assert_eq!(names(&path).len(), expected);
        assert_eq!(latest(&path), (Some(5), vec![]));
    }
}

#[test]
fn damaged_checkpoints_are_skipped_and_said() {
    let (_folder, path) = run(&[1, 2, 3, 4, 5, 6]);
    let file = |step: u64, name: &str| path.join(format!("step-00000{step}/{name}"));
    let change = |path: &Path, f: &dyn Fn(&mut Vec<u8>)| {
        let mut content = fs::read(path).unwrap();
        f(&mut content);
        fs::write(path, content).unwrap();
    };
    let len = fs::read(file(2, "optimizer.safetensors")).unwrap().len();
    fs::remove_file(file(6, "model.safetensors")).unwrap();
    fs::remove_file(file(5, "state.json")).unwrap();
    change(&file(4, "model.safetensors"), &|content| *content.last_mut().unwrap() ^= 1);
    change(&file(3, "state.json"), &|content| content.truncate(40));
    change(&file(2, "optimizer.safetensors"), &|content| content.truncate(len - 1));
    let (step, skipped) = latest(&path);
    let lost = "No such file or directory (os error 2)";
    assert_eq!(step, Some(1));
    assert_eq!(skipped[0], format!("cannot read `RUN/step-000006/model.safetensors`: {lost}"));
    assert_eq!(skipped[1], format!("cannot read `RUN/step-000005/state.json`: {lost}"));
    assert_eq!(skipped[2], "`RUN/step-000004/model.safetensors` is damaged: its bytes are not those that were written");
    assert!(skipped[3].starts_with("`RUN/step-000003/state.json` is damaged: EOF while parsing"), "{}", skipped[3]);
    let cut = format!("`RUN/step-000002/optimizer.safetensors` is damaged: it has {} bytes and had {len}", len - 1);
    assert_eq!(skipped[4..], [cut]);
    change(&file(1, "state.json"), &|content| {
        *content = String::from_utf8(content.clone()).unwrap().replace("\"format\": 1", "\"format\": 2").into_bytes();
    });
    let newer = "`RUN/step-000001/state.json` has the format 2 of a newer version; this one reads up to 1";
    assert_eq!(message(Checkpoint::open(path.join("step-000001")), &path), newer);
    // To begin anew would not be what was meant.
    let none = message(Checkpoint::latest(&path), &path);
    assert_eq!(none, format!("`RUN` has 6 checkpoints, and none of them can be read: {newer}"));

    // A run that goes on from before the damaged ones sets them aside, as it does with what it had after the step that it goes back to.
    let mut checkpoints = Checkpoints::open_with(&CheckpointOptions { keep: Some(2), ..NOW }, &path).unwrap();
    checkpoints.save(snapshot(2)).unwrap();
    let expected = ["step-000001", "step-000002", "step-000003.old", "step-000004.old", "step-000005.old"];
    assert_eq!(names(&path)[..5], expected);
    checkpoints.save(snapshot(2)).unwrap();
    assert_eq!(names(&path)[..5], expected);
    assert_eq!(latest(&path), (Some(2), vec![]));
    // Each goes when its step is there again.
    checkpoints.save(snapshot(4)).unwrap();
    let expected = ["step-000002", "step-000003.old", "step-000004", "step-000005.old", "step-000006.old"];
    assert_eq!(names(&path), expected);
    assert_eq!(latest(&path), (Some(4), vec![]));
}

#[test]
fn damaged_checkpoints_take_no_place() {
    let (_folder, path) = run(&[1, 2, 3, 4]);
    fs::write(path.join("step-000003/model.safetensors"), "cut").unwrap();
    fs::remove_file(path.join("step-000004/state.json")).unwrap();
    let mut checkpoints = Checkpoints::open_with(&CheckpointOptions { keep: Some(3), ..NOW }, &path).unwrap();
    checkpoints.save(snapshot(5)).unwrap();
    assert_eq!(names(&path), ["step-000001", "step-000002", "step-000003", "step-000004", "step-000005"]);
    checkpoints.save(snapshot(6)).unwrap();
    checkpoints.save(snapshot(7)).unwrap();
    assert_eq!(names(&path), ["step-000005", "step-000006", "step-000007"]);
}

#[test]
fn every_flipped_bit_of_the_state_is_noticed() {
    let (_folder, path) = run(&[3]);
    let (folder, file) = (path.join("step-000003"), path.join("step-000003/state.json"));
    let content = fs::read(&file).unwrap();
    for byte in 0..content.len() {
        for bit in 0..8 {
            let mut flipped = content.clone();
            flipped[byte] ^= 1 << bit;
            fs::write(&file, &flipped).unwrap();
            let shown = String::from_utf8_lossy(&flipped);
            assert!(Checkpoint::open(&folder).is_err(), "bit {bit} of byte {byte} was flipped: {shown}");
        }
    }
    fs::write(&file, String::from_utf8(content.clone()).unwrap().replace("\"epoch\":3", "\"epoch\":4")).unwrap();
    let changed = message(Checkpoint::open(&folder), &path);
    assert_eq!(changed, "`RUN/step-000003/state.json` is damaged: it is not what was written");
    fs::write(&file, content).unwrap();
    Checkpoint::open(&folder).unwrap();
}

#[test]
fn a_checkpoint_of_another_step_is_skipped() {
    let (_folder, path) = run(&[1, 2]);
    fs::rename(path.join("step-000002"), path.join("step-000009")).unwrap();
    assert_eq!(latest(&path), (Some(1), vec!["`RUN/step-000009` is the checkpoint of step 2".to_string()]));
}

#[test]
fn what_a_kill_leaves() {
    let (_folder, path) = run(&[1, 2]);
    // While it was writing: some files, or all of them and not the name.
    fs::create_dir(path.join(".step-000003.partial")).unwrap();
    fs::write(path.join(".step-000003.partial/model.safetensors"), b"half").unwrap();
    fs::rename(path.join("step-000001"), path.join(".step-000001.removed")).unwrap();
    fs::remove_file(path.join(".step-000001.removed/state.json")).unwrap();
    // What is not ours is left alone.
    fs::write(path.join("notes.txt"), "").unwrap();
    fs::create_dir(path.join("step-000001.old")).unwrap();
    let unfinished = "`RUN/.step-000003.partial` was not finished".to_string();
    assert_eq!(latest(&path), (Some(2), vec![unfinished.clone()]));
    // Reading removes nothing: the run may be alive.
    assert_eq!(latest(&path), (Some(2), vec![unfinished]));
    let mut checkpoints = Checkpoints::open_with(&NOW, &path).unwrap();
    assert_eq!(names(&path), ["notes.txt", "step-000001.old", "step-000002"]);
    checkpoints.save(snapshot(3)).unwrap();
    assert_eq!(latest(&path), (Some(3), vec![]));

    // A partial one alone is no checkpoint, and no reason to stop.
    let (_folder, path) = run(&[]);
    fs::create_dir(path.join(".step-000003.partial")).unwrap();
    assert_eq!(latest(&path), (None, vec!["`RUN/.step-000003.partial` was not finished".to_string()]));
}

/// A step is saved again: wherever a kill comes, there is the checkpoint that was or the one that is to be, for a reader and for the run
/// that goes on.
#[test]
fn what_a_kill_leaves_of_a_step_that_is_saved_again() {
    let [whole, partial, replaced] = ["step-000002", ".step-000002.partial", ".step-000002.replaced"];
    // A run with a checkpoint of a tree more, which tells it from the one that it replaces.
    let kill = |leave: &dyn Fn(&Path, &Path)| {
        let (folder, path) = run(&[2]);
        let mut checkpoints = Checkpoints::open_with(&NOW, folder.path().join("again")).unwrap();
        checkpoints.save(snapshot(2).with("more", &Tensor::from(1.0f32)).unwrap()).unwrap();
        leave(&path, &folder.path().join("again/step-000002"));
        (folder, path)
    };
    let is_new = |path: &Path| Checkpoint::latest(path).unwrap().checkpoint.unwrap().trees().count() == 3;
    let goes_on = |(folder, path): (TempDir, PathBuf), expected: bool| {
        // A reader is not told to begin anew, and removes nothing.
        let before = names(&path);
        assert_eq!(latest(&path).0, Some(2));
        assert_eq!(names(&path), before);
        drop(Checkpoints::open_with(&NOW, &path).unwrap());
        assert_eq!((names(&path), latest(&path)), (vec![whole.to_string()], (Some(2), vec![])));
        assert_eq!(is_new(&path), expected, "{before:?}");
        drop(folder);
    };
    let rename = |path: &Path, from: &str, to: &str| fs::rename(path.join(from), path.join(to)).unwrap();
    let cut = |path: &Path| fs::remove_file(path.join(partial).join("state.json")).unwrap();
    // While it was written.
    let half = kill(&|path, new| {
        fs::rename(new, path.join(partial)).unwrap();
        cut(path);
    });
    goes_on(half, false);
    // Once it was written.
    goes_on(kill(&|path, new| fs::rename(new, path.join(partial)).unwrap()), true);
    // Between the two names.
    let between = kill(&|path, new| {
        fs::rename(new, path.join(partial)).unwrap();
        rename(path, whole, replaced);
    });
    assert_eq!(names(&between.1), [partial, replaced]);
    goes_on(between, true);
    // There, and the disk has lost a part of it.
    let lost = kill(&|path, new| {
        fs::rename(new, path.join(partial)).unwrap();
        rename(path, whole, replaced);
        cut(path);
    });
    goes_on(lost, false);
    let none = kill(&|path, _| rename(path, whole, replaced));
    goes_on(none, false);
    // Before the other was removed, and while it was.
    let named = kill(&|path, new| {
        rename(path, whole, replaced);
        fs::rename(new, path.join(whole)).unwrap();
    });
    goes_on(named, true);
    let removing = kill(&|path, new| {
        rename(path, whole, replaced);
        fs::remove_file(path.join(replaced).join("state.json")).unwrap();
        fs::rename(new, path.join(whole)).unwrap();
    });
    goes_on(removing, true);
}

/// The checkpoints of later steps stay until the new one is whole.
#[test]
fn what_cannot_be_saved_takes_nothing_away() {
    let (_folder, path) = run(&[2, 3]);
    let mut checkpoints = Checkpoints::open_with(&NOW, &path).unwrap();
    // A file where the folder of a step is to be.
    fs::write(path.join(".step-000001.partial"), "").unwrap();
    checkpoints.save(snapshot(1)).unwrap_err();
    assert_eq!(latest(&path), (Some(3), vec![]));
    // One where the checkpoint is to go that is replaced.
    fs::write(path.join(".step-000002.replaced"), "").unwrap();
    checkpoints.save(snapshot(2)).unwrap_err();
    assert_eq!(latest(&path), (Some(3), vec![]));
    fs::remove_file(path.join(".step-000001.partial")).unwrap();
    fs::remove_file(path.join(".step-000002.replaced")).unwrap();
    checkpoints.save(snapshot(2)).unwrap();
    assert_eq!(names(&path), ["step-000002", "step-000003.old"]);
}

/// A reader finds a checkpoint at each instant of a run that writes, and nothing to complain of.
#[test]
fn a_reader_beside_a_run_that_writes() {
    let (_folder, path) = run(&[1]);
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut checkpoints =
                Checkpoints::open_with(&CheckpointOptions { keep: Some(1), background: true }, &path).unwrap();
            for step in 1..=60 {
                checkpoints.save(snapshot(step)).unwrap();
                checkpoints.save(snapshot(step)).unwrap();
            }
            checkpoints.finish().unwrap();
        }
    });
    let (mut last, mut looks) = (0, 0);
    while !writer.is_finished() {
        let Latest { checkpoint, skipped } = Checkpoint::latest(&path).unwrap();
        assert!(skipped.is_empty(), "{skipped:?}");
        let step = checkpoint.expect("no checkpoint").progress::<Position, Config>().unwrap().step;
        assert!(step >= last, "step {step} after {last}");
        (last, looks) = (step, looks + 1);
    }
    writer.join().unwrap();
    assert_eq!(latest(&path), (Some(60), vec![]));
    println!("looked {looks} times");
}

/// The run that writes may remove it, or save its step again, since it was opened: what was checked is read.
#[test]
fn a_checkpoint_that_was_opened_is_read_though_it_is_removed() {
    let (_folder, path) = run(&[1]);
    let (model, moments) = state(1);
    let checkpoint = Checkpoint::latest(&path).unwrap().checkpoint.unwrap();
    let named = Checkpoint::open(path.join("step-000001")).unwrap();
    fs::remove_dir_all(path.join("step-000001")).unwrap();
    for checkpoint in [&checkpoint, &named] {
        // Twice, and by several threads, which have one position in the file.
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| assert_eq!(bits(&checkpoint.tree("model", &model).unwrap()), bits(&model)));
                }
                assert_eq!(bits(&checkpoint.tree("optimizer", &moments).unwrap()), bits(&moments));
            });
        }
    }
}

#[test]
fn one_run_writes_to_a_folder() {
    let (_folder, path) = run(&[1]);
    let first = Checkpoints::open(&path).unwrap();
    let second = message(Checkpoints::open(&path), &path);
    assert_eq!(second, "`RUN` is where another run writes its checkpoints");
    drop(first);
    Checkpoints::open(&path).unwrap();
    let file = message(Checkpoints::open(path.join("step-000001/state.json")), &path);
    assert!(file.starts_with("cannot make `RUN/step-000001/state.json`"), "{file}");
}

#[test]
fn errors_in_the_background_come_with_the_next_save() {
    let (_folder, path) = run(&[1]);
    let mut checkpoints = Checkpoints::open(&path).unwrap();
    // A file where the folder of a step is to be.
    fs::write(path.join(".step-000002.partial"), "").unwrap();
    checkpoints.save(snapshot(2)).unwrap();
    let error = message(checkpoints.save(snapshot(3)), &path);
    assert!(error.starts_with("cannot remove `RUN/.step-000002.partial`: "), "{error}");
    checkpoints.save(snapshot(3)).unwrap();
    checkpoints.finish().unwrap();
    assert_eq!(latest(&path).0, Some(3));
    let mut checkpoints = Checkpoints::open_with(&CheckpointOptions::default(), run(&[1]).1).unwrap();
    // The folder of that run is gone.
    assert!(message(checkpoints.save(snapshot(2)), &path).contains("is no longer the folder that was opened"));
    let (_folder, path) = run(&[1]);
    let mut checkpoints = Checkpoints::open(&path).unwrap();
    fs::write(path.join(".step-000004.partial"), "").unwrap();
    checkpoints.save(snapshot(4)).unwrap();
    assert!(checkpoints.finish().unwrap_err().message().starts_with("cannot remove "));
}

/// What a process of the test below does; nothing in an ordinary run.
#[test]
fn worker() {
    let Some(path) = std::env::var_os("REMAT_TEST_SAVE") else { return };
    let mut checkpoints = Checkpoints::open(path).unwrap();
    let large = vec![Tensor::ones([40_000], DType::F64)];
    checkpoints.save(snapshot(2).with("average", &large).unwrap()).unwrap();
    println!("\nfinished {:?}", checkpoints.finish().map_err(|error| error.message().to_string()));
}

/// A limit on the size of files is an error in the middle of writing, as a full disk is: nothing of the checkpoint is left, and the one
/// before it is there.
#[cfg(unix)]
#[test]
fn a_full_disk() {
    let (_folder, path) = run(&[1]);
    let script = "trap '' XFSZ; ulimit -f 300; exec \"$0\" worker --exact --nocapture";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap()).env("REMAT_TEST_SAVE", &path);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let text = text.replace(path.to_str().unwrap(), "RUN");
    let expected = "write tensor `0` of `RUN/.step-000002.partial/average.safetensors`: File too large (os error 27)";
    assert!(text.contains(&format!("finished Err(\"cannot {expected}\")")), "{text}");
    assert_eq!(names(&path), ["step-000001"]);
    assert_eq!(latest(&path), (Some(1), vec![]));
}

#[test]
fn snapshots_that_cannot_be() {
    let path = Path::new("RUN");
    let empty = || Snapshot::new(&progress(1)).unwrap();
    for name in ["", "a/b", "..", "mod el"] {
        let expected = format!("{name:?} is not the name of a tree: take letters, digits, `_` and `-`");
        assert_eq!(message(empty().with(name, &()), path), expected);
    }
    let twice = message(empty().with("model", &()).unwrap().with("model", &()), path);
    assert_eq!(twice, "the snapshot has a tree `model` already");
    let is_abstract = message(empty().with("model", &vec![Tensor::shape_only([2], DType::F32)]), path);
    assert!(
        is_abstract.starts_with("tensor `0` of the tree `model`: the tensor (f32[2]) is abstract"),
        "{is_abstract}"
    );
    let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
    let json = message(Snapshot::new(&Progress { step: 4, seed: 0, data: (), config: keys }), path);
    assert_eq!(json, "the progress of step 4 cannot be written as JSON: key must be a string");
}

/// JSON has no NaN: it would be null, which is not read as a float again.
#[test]
fn progress_that_is_not_finite() {
    #[derive(Serialize)]
    enum Rate {
        Constant(f32),
        Between(f64, f64),
        Named { rate: Option<f64> },
    }
    #[derive(Serialize)]
    struct Wrapped(Vec<Rate>);
    #[track_caller]
    fn refused<C: Serialize>(config: C, expected: &str) {
        let error = message(Snapshot::new(&Progress { step: 4, seed: 0, data: (), config }), Path::new("RUN"));
        assert_eq!(error, format!("the progress of step 4 cannot be written as JSON: {expected}"));
    }
    refused(f64::NAN, "`config` is NaN");
    refused(Config { width: 1, learning_rate: f64::INFINITY }, "`config.learning_rate` is inf");
    refused(Some(Rate::Constant(f32::NEG_INFINITY)), "`config.Constant` is -inf");
    refused(Wrapped(vec![Rate::Constant(1.0), Rate::Between(0.0, f64::NAN)]), "`config.1.1` is NaN");
    refused([Rate::Named { rate: Some(f64::NAN) }], "`config.0.rate` is NaN");
    refused(std::collections::BTreeMap::from([("a", 1.0), ("b", f32::NAN)]), "`config.b` is NaN");
    refused(std::collections::BTreeMap::from([(7, (true, "x", f32::NAN))]), "`config.7.2` is NaN");
    let data = [f64::NAN];
    let error = message(Snapshot::new(&Progress { step: 4, seed: 0, data, config: () }), Path::new("RUN"));
    assert!(error.ends_with("`data.0` is NaN"), "{error}");
    // What is finite, in every bit; and an option that has none.
    let config = (f64::MAX, f64::MIN_POSITIVE / 3.0, -0.0, f32::MIN_POSITIVE, None::<f64>, u128::MAX);
    let (_folder, path) = run(&[]);
    let mut checkpoints = Checkpoints::open_with(&NOW, &path).unwrap();
    checkpoints.save(Snapshot::new(&Progress { step: 4, seed: 0, data: (), config }).unwrap()).unwrap();
    let read: Progress<(), (f64, f64, f64, f32, Option<f64>, u128)> =
        Checkpoint::latest(&path).unwrap().checkpoint.unwrap().progress().unwrap();
    assert_eq!((read.config, read.config.2.to_bits()), (config, (-0.0f64).to_bits()));
}

/// The host's tensors are shared, those of a device copied, so that a step may take their memory.
#[test]
fn snapshots_share_what_the_host_has() {
    let x = Tensor::zeros([1000], DType::F32);
    let snapshot = Snapshot::new(&progress(1)).unwrap().with("x", &x).unwrap();
    drop(snapshot);
    let Some(device) = installed("snapshots of tensors on a device", Device::xla_cpu(0)) else { return };
    let there = x.to_device(&device);
    let step = remat::jit(|x: &Tensor| x + 1.0);
    let (_folder, path) = run(&[]);
    let mut checkpoints = Checkpoints::open(&path).unwrap();
    checkpoints.save(Snapshot::new(&progress(1)).unwrap().with("x", &there).unwrap()).unwrap();
    let next = step.call(there).unwrap();
    checkpoints.finish().unwrap();
    assert_eq!(next.to_vec::<f32>().unwrap()[0], 1.0);
    let again = Checkpoint::latest(&path).unwrap().checkpoint.unwrap().tree("x", &x).unwrap();
    assert_eq!(bits(&again), bits(&x));
}

/// Another run may begin under the old name of a folder.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_is_moved_is_followed() {
    let (at, path) = run(&[]);
    let mut first = Checkpoints::open_with(&NOW, &path).unwrap();
    first.save(snapshot(1)).unwrap();
    let moved = at.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    let mut second = Checkpoints::open_with(&NOW, &path).unwrap();
    second.save(snapshot(7)).unwrap();
    first.save(snapshot(2)).unwrap();
    assert_eq!(first.folder(), moved);
    assert_eq!(names(&moved), ["step-000001", "step-000002"]);
    assert_eq!(names(&path), ["step-000007"]);
    // One that is deleted does not come back without a lock.
    fs::remove_dir_all(&moved).unwrap();
    let error = first.save(snapshot(3)).unwrap_err();
    let expected = "is no longer the folder that was opened: it was deleted or moved";
    assert_eq!(error.message(), format!("`{}` {expected}", moved.display()));
    assert!(!moved.exists());
}

/// A downloaded folder may have anything under this name.
#[cfg(unix)]
#[test]
fn only_a_file_is_locked() {
    let (at, path) = run(&[1]);
    let lock = path.join(".lock");
    let victim = at.path().join("victim");
    let message = || Checkpoints::open(&path).err().unwrap().message().to_string();
    let expected = format!("`{}` is not a file", lock.display());
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&victim, &lock).unwrap();
    assert_eq!(message(), expected);
    assert!(!victim.exists());
    fs::remove_file(&lock).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    assert_eq!(message(), expected);
    assert!(Checkpoint::latest(&path).unwrap().checkpoint.is_some());
}
