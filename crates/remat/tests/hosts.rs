//! Training in two processes: this test binary, started again for each node.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use remat::cluster::Cluster;
use remat::optim::{AdamW, Optimizer};
use remat::tree::leaves;
use remat::{DType, Result, Tensor, Tree, jit, nn, random, value_and_grad};

#[derive(Clone, Tree)]
struct Mlp {
    up: nn::Linear,
    down: nn::Linear,
}

impl Mlp {
    fn loss(&self, x: &Tensor) -> Tensor {
        (self.down.apply(&self.up.apply(x).tanh()) - x.square()).square().mean(..)
    }
}

/// The parameters after some steps, each with the mean gradient over the parts of a batch.
fn train(cluster: &Cluster, steps: u32) -> Result<Vec<f32>> {
    // Each node begins with other parameters, which do not count but on the first.
    let [up, down] = random::key(cluster.rank() as u64).split();
    let up = nn::Linear::init(up, 3, 8, DType::F32);
    let model = cluster.broadcast(&Mlp { up, down: nn::Linear::init(down, 8, 3, DType::F32) })?;
    let adam = AdamW { learning_rate: remat::optim::Schedule::Constant(0.01), ..AdamW::default() };
    let gradient = jit(|(model, x): &(Mlp, Tensor)| value_and_grad(|model: &Mlp| model.loss(x))(model));
    let (mut model, mut state) = (model.clone(), adam.init(&model));
    let part = 8 / cluster.nodes();
    for step in 0..steps {
        let batch = random::normal(random::key(7).fold_in(step), [8, 3], DType::F32);
        let rows = part * cluster.rank()..part * (cluster.rank() + 1);
        let mean = cluster.all_reduce_mean(&gradient.call((model.clone(), batch.index(rows)))?)?;
        (model, state) = adam.update(&model, &mean.1, &state)?;
        if steps > 1000 {
            println!("step {step}");
        }
    }
    leaves(&model).iter().map(|(_, leaf)| leaf.to_vec::<f32>()).collect::<Result<Vec<_>>>().map(|all| all.concat())
}

/// What a process of the tests below does; nothing in an ordinary run.
#[test]
fn node() {
    let Ok(job) = std::env::var("REMAT_TEST_JOB") else { return };
    let trained = Cluster::from_env().and_then(|cluster| train(&cluster, job.parse().unwrap()));
    match trained {
        Ok(parameters) => println!("parameters {:?}", parameters.iter().map(|x| x.to_bits()).collect::<Vec<_>>()),
        Err(error) => {
            println!("error {error}");
            std::process::exit(3);
        }
    }
}

/// The process of a rank, which takes this many steps.
fn start(address: &str, rank: usize, steps: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["node", "--exact", "--nocapture", "--test-threads=1"]).env("REMAT_TEST_JOB", steps.to_string());
    command.env("REMAT_COORDINATOR", address).env("REMAT_NODE_ID", rank.to_string()).env("REMAT_NUM_NODES", "2");
    command.env("REMAT_FAILURE_TIMEOUT", "4").env("REMAT_THREADS", "1");
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn two(steps: u32) -> [Child; 2] {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    [0, 1].map(|rank| start(&address, rank, steps))
}

#[test]
fn two_processes_train_as_one_does() {
    let outputs = two(20).map(|child| {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line =
            text.lines().find_map(|line| Some(line.split_once("parameters [")?.1.trim_end_matches(']').to_string()));
        line.unwrap_or_else(|| panic!("{text}"))
    });
    assert_eq!(outputs[0], outputs[1], "parameters are the same in every bit");
    let parameters: Vec<f32> = outputs[0].split(", ").map(|bits| f32::from_bits(bits.parse().unwrap())).collect();
    let alone = train(&Cluster::alone(), 20).unwrap();
    assert_eq!(parameters.len(), alone.len());
    let difference = parameters.iter().zip(&alone).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    assert!(difference < 1e-6, "{difference}");
}

/// Waits until a process has taken some steps; its output from there on.
fn running(child: &mut Child) -> BufReader<ChildStdout> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("step 3") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the process has ended");
    }
    output
}

/// What the other process says, and after how long, when one of two that train is treated like this.
fn survivor(ended: usize, end: impl Fn(&mut Child)) -> (String, Duration) {
    let mut children = two(u32::MAX);
    let outputs = children.each_mut().map(running);
    end(&mut children[ended]);
    let start = Instant::now();
    let mut text = String::new();
    let [zero, one] = outputs;
    (if ended == 0 { one } else { zero }).read_to_string(&mut text).unwrap();
    let after = start.elapsed();
    children[ended].kill().unwrap();
    let codes = children.each_mut().map(|child| child.wait().unwrap().code());
    assert_eq!(codes[1 - ended], Some(3), "{text}");
    let error = text.lines().find_map(|line| line.strip_prefix("error ")).unwrap().to_string();
    (error, after)
}

#[test]
fn a_killed_process_ends_the_others() {
    let (error, after) = survivor(1, |child| child.kill().unwrap());
    assert_eq!(error, "cluster: node 1 of 2 has ended without leaving the cluster");
    assert!(after < Duration::from_secs(10), "{after:?}");
}

#[test]
fn a_killed_coordinator_ends_the_others() {
    let (error, after) = survivor(0, |child| child.kill().unwrap());
    assert!(error.starts_with("cluster: the coordinator (node 0, at 127.0.0.1:"), "{error}");
    assert!(error.ends_with(") has ended") && after < Duration::from_secs(10), "{error} {after:?}");
}

/// A process that stands still is like a host that is lost: its connections stay open.
#[cfg(unix)]
#[test]
fn a_process_that_stands_still_ends_the_others() {
    let (error, after) = survivor(1, |child| {
        let stopped = Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap();
        assert!(stopped.success());
    });
    assert_eq!(error, "cluster: node 1 of 2 has not been heard from for 4 s");
    assert!((3..10).contains(&after.as_secs()), "{after:?}");
}

#[test]
fn errors_of_trees_name_the_line() {
    let line = line!() + 1;
    let error = Cluster::alone().all_reduce_mean(&vec![Tensor::from(1i32)]).unwrap_err();
    assert_eq!(error.message(), "i32 at `0` is not a float");
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    let traced = jit(|x: &Tensor| Cluster::alone().all_reduce_mean(x)).call(Tensor::from(1.0f32)).unwrap_err();
    assert_eq!((traced.operation(), traced.kind()), ("all_reduce_mean", remat::ErrorKind::Traced));
    let empty: Vec<Tensor> = Cluster::alone().all_reduce_sum(&vec![]).unwrap();
    assert!(empty.is_empty());
}
