//! A training process that is killed at random moments, and goes on, has the losses and the weights of one that was not: this test binary, started
//! again as that process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use remat::optim::{AdamW, Moments, Optimizer, Schedule};
use remat::{DType, Result, Tensor, Tree, jit, nn, random, value_and_grad};
use remat_io::{Checkpoint, CheckpointOptions, Checkpoints, Progress, Snapshot, save};
use serde::{Deserialize, Serialize};

const STEPS: u64 = 400;
const KILLS: u64 = 30;
const SEED: u64 = 11;

#[derive(Clone, Tree)]
struct Mlp {
    up: nn::Linear,
    down: nn::Linear,
}

/// Where the run is in its data: what the next batch is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Position {
    epoch: u64,
    batch: u64,
}

#[derive(Serialize, Deserialize)]
struct Config {
    width: usize,
    learning_rate: f64,
}

fn model(config: &Config) -> Mlp {
    let [up, down] = random::key(SEED).split();
    let up = nn::Linear::init(up, 3, config.width, DType::F32);
    Mlp { up, down: nn::Linear::init(down, config.width, 3, DType::F32) }
}

/// Trains from the last checkpoint in a folder to the end, and writes the last model beside the checkpoints. Prints the bits of each loss.
fn train(run: &Path) -> Result<()> {
    const BATCHES: u64 = 7;
    let mut checkpoints = Checkpoints::open_with(&CheckpointOptions { keep: Some(2), background: true }, run)?;
    let latest = Checkpoint::latest(run)?;
    assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
    let config = Config { width: 8, learning_rate: 0.1 + 0.2 };
    let mut progress = Progress { step: 0, seed: SEED, data: Position { epoch: 0, batch: 0 }, config };
    let mut weights = model(&progress.config);
    let adam =
        |config: &Config| AdamW { learning_rate: Schedule::Constant(config.learning_rate / 30.0), ..AdamW::default() };
    let mut state = adam(&progress.config).init(&weights);
    if let Some(checkpoint) = latest.checkpoint {
        progress = checkpoint.progress()?;
        (weights, state) = (checkpoint.tree("model", &weights)?, checkpoint.tree("optimizer", &state)?);
    }
    let adam = adam(&progress.config);
    let step = jit(|(weights, state, x, key): &(Mlp, Moments<Mlp>, Tensor, random::Key)| {
        let loss = |m: &Mlp| {
            let hidden = nn::dropout(key.reuse(), &m.up.apply(x).tanh(), 0.1);
            (m.down.apply(&hidden) - x.square()).square().mean(..)
        };
        let (loss, gradient) = value_and_grad(loss)(weights)?;
        let (weights, state) = adam.update(weights, &gradient, state)?;
        Ok::<_, remat::Error>((weights, state, loss))
    });
    // On a line of its own, behind what the harness has begun to print.
    println!("\nresumed {}", progress.step);
    while progress.step < STEPS {
        let Position { epoch, batch } = progress.data;
        let order = random::key(progress.seed).fold_in(epoch as i64).fold_in(batch as i64);
        let x = random::normal(order, [4, 3], DType::F32);
        let key = random::key(!progress.seed).fold_in(progress.step as i64);
        let loss;
        (weights, state, loss) = step.call((weights, state, x, key))?;
        progress.step += 1;
        progress.data = if batch + 1 < BATCHES {
            Position { epoch, batch: batch + 1 }
        } else {
            Position { epoch: epoch + 1, batch: 0 }
        };
        println!("loss {} {:08x}", progress.step, loss.item::<f32>()?.to_bits());
        if progress.step.is_multiple_of(3) {
            let snapshot = || Snapshot::new(&progress)?.with("model", &weights)?.with("optimizer", &state);
            checkpoints.save(snapshot()?)?;
            if progress.step.is_multiple_of(2) {
                // Again, so that kills come while one is replaced.
                checkpoints.save(snapshot()?)?;
            }
        }
    }
    checkpoints.finish()?;
    save(run.join("last.safetensors"), &(weights, state))
}

/// What a process of the test below does; nothing in an ordinary run.
#[test]
fn process() {
    let Some(run) = std::env::var_os("REMAT_TEST_RUN") else { return };
    if let Err(error) = train(run.as_ref()) {
        println!("error {error}");
    }
}

fn start(run: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["process", "--exact", "--nocapture", "--test-threads=1"]).env("REMAT_TEST_RUN", run);
    command.env("REMAT_THREADS", "1").env_remove("REMAT_DEVICE").stdout(Stdio::piped()).spawn().unwrap()
}

/// What a process printed.
#[derive(Default)]
struct Printed {
    losses: BTreeMap<u64, String>,
    resumed: Vec<u64>,
}

impl Printed {
    /// Reads the lines of a process, of which the last may be cut off by a kill, up to the end or up to this number of losses.
    fn read(&mut self, lines: &mut impl BufRead, mut losses: u64) {
        let mut line = String::new();
        while losses > 0 && lines.read_line(&mut line).unwrap() > 0 {
            let whole = line.ends_with('\n');
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["loss", step, bits] if whole => {
                    let before = self.losses.insert(step.parse().unwrap(), bits.to_string());
                    assert!(before.is_none_or(|before| before == bits), "step {step} had another loss before");
                    losses -= 1;
                }
                ["resumed", step] if whole => self.resumed.push(step.parse().unwrap()),
                ["error", ..] => panic!("{line}"),
                _ => {}
            }
            line.clear();
        }
    }
}

/// A run that is not killed: what it printed, its last model, and how long it took to the first loss and for each.
fn uninterrupted(run: &Path) -> (Printed, Vec<u8>, [Duration; 2]) {
    let started = Instant::now();
    let mut child = start(run);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut printed = Printed::default();
    printed.read(&mut lines, 1);
    let begun = started.elapsed();
    printed.read(&mut lines, u64::MAX);
    assert!(child.wait().unwrap().success());
    (printed, std::fs::read(run.join("last.safetensors")).unwrap(), [begun, (started.elapsed() - begun) / STEPS as u32])
}

#[test]
fn a_killed_run_goes_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (expected, last, [begin, step]) = uninterrupted(&folder.path().join("whole"));
    assert_eq!(expected.losses.len() as u64, STEPS);
    let run = folder.path().join("killed");
    let (mut printed, mut partial) = (Printed::default(), 0);
    for kill in 0..KILLS {
        let [some, more] = random_parts(kill);
        let mut child = start(&run);
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        if kill % 5 == 4 {
            // While it loads, traces and compiles.
            sleep(begin.mul_f64(more));
        } else {
            // After some losses, which together are fewer than all, and at any instant of the next few steps.
            printed.read(&mut lines, 1 + (some * 1.5 * (STEPS / KILLS) as f64) as u64);
            sleep(step.mul_f64(4.0 * more));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        printed.read(&mut lines, u64::MAX);
        let names = std::fs::read_dir(&run).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        partial += u32::from(names.map(|name| name.into_string().unwrap()).any(|name| name.ends_with(".partial")));
    }
    let (rest, again, _) = uninterrupted(&run);
    printed.losses.extend(rest.losses);
    printed.resumed.extend(rest.resumed);
    println!("{partial} of {KILLS} kills were in the middle of a checkpoint; runs went on from {:?}", printed.resumed);
    assert_eq!(printed.losses, expected.losses);
    assert!(again == last, "the last models or optimizer states differ");
    assert!(printed.resumed.is_sorted() && printed.resumed.last() > Some(&0), "{:?}", printed.resumed);
    assert!(partial > 0, "no kill was in the middle of a checkpoint");
}

/// Two numbers from 0 to 1 for each kill, the same in each run of the test.
fn random_parts(kill: u64) -> [f64; 2] {
    let key = random::key(SEED).fold_in(kill as i64);
    random::uniform(key, [2], DType::F64, 0.0..1.0).to_vec().unwrap().try_into().unwrap()
}
