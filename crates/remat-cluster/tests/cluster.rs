//! Clusters whose nodes are threads of one process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use remat_cluster::{ClusterConfig, Node, Reduction};
use remat_ir::{Array, Result, bf16, f16};

const LONG: Duration = Duration::from_secs(60);

/// An address at which nobody listens.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn config(address: &str, rank: usize, nodes: usize) -> ClusterConfig {
    ClusterConfig { start_timeout: LONG, ..ClusterConfig::new(address, rank, nodes) }
}

/// What a function gives on each node of a cluster.
fn run<T: Send>(nodes: usize, f: impl Fn(Node) -> T + Sync) -> Vec<T> {
    let address = free();
    thread::scope(|scope| {
        let start = |rank| {
            let (address, f) = (&address, &f);
            scope.spawn(move || f(Node::join(&config(address, rank, nodes)).unwrap()))
        };
        // The coordinator comes last: the others try until it is there.
        let threads: Vec<_> = (0..nodes).rev().map(start).collect();
        threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The messages of errors, or nothing.
fn message<T>(result: Result<T>) -> String {
    result.err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn values_are_seen_by_all_nodes() {
    let binary: Vec<u8> = (0..=255).collect();
    let seen = run(3, |node| {
        let store = node.store().unwrap();
        if node.rank() == 1 {
            thread::sleep(Duration::from_millis(50));
            store.put(b"k\0", &binary).unwrap();
            store.put(b"k\0", &binary).unwrap();
        }
        let value = store.get(b"k\0", LONG).unwrap();
        let early = store.try_get(b"nothing").unwrap().is_none();
        let empty = store.put(b"", b"").and_then(|()| store.try_get(b"")).unwrap();
        node.barrier("end", LONG).unwrap();
        node.barrier("end", LONG).unwrap();
        (value, early, empty, message(store.put(b"k\0", b"other")))
    });
    let other = "cluster: the key `k\0` has another value already".to_string();
    assert_eq!(seen, vec![(Some(binary.clone()), true, Some(vec![]), other); 3]);
}

#[test]
fn a_value_that_nobody_gives_is_waited_for_as_long_as_asked() {
    run(2, |node| {
        let start = Instant::now();
        assert_eq!(node.store().unwrap().get(b"nothing", Duration::from_millis(200)).unwrap(), None);
        assert!((200..5000).contains(&start.elapsed().as_millis()));
        let long = vec![0; 1 << 26];
        let error = message(node.store().unwrap().put(b"k", &long));
        assert_eq!(error, "cluster: a message of 67108880 bytes is longer than 67108864 bytes");
    });
}

#[test]
fn one_waits_while_another_thread_of_the_node_gives() {
    run(2, |node| {
        let own = format!("{}", node.rank());
        thread::scope(|scope| {
            let getting = scope.spawn(|| node.store().unwrap().get(own.as_bytes(), LONG).unwrap());
            thread::sleep(Duration::from_millis(50));
            node.store().unwrap().put(own.as_bytes(), b"here").unwrap();
            assert_eq!(getting.join().unwrap().as_deref(), Some(&b"here"[..]));
        });
    });
}

#[test]
fn barriers_say_who_is_missing() {
    let messages = run(3, |node| {
        if node.rank() == 2 {
            node.store().unwrap().get(b"done", LONG).unwrap();
            return String::new();
        }
        let missed = message(node.barrier("b", Duration::from_millis(300)));
        // No node leaves before both have given up.
        node.store().unwrap().put(if node.rank() == 0 { b"done" } else { b"also" }, b"").unwrap();
        node.store().unwrap().get(if node.rank() == 0 { b"also" } else { b"done" }, LONG).unwrap();
        missed
    });
    // The first to give up is missing for the second where their times differ.
    assert!(messages[0].starts_with("cluster: the barrier `b` was reached by all but node"), "{messages:?}");
    let left = run(2, |node| if node.rank() == 0 { message(node.barrier("b", LONG)) } else { String::new() });
    assert_eq!(left[0], "cluster: node 1 of 2 has left before the barrier `b`");
}

/// The sums over the ranks of arrays of each dtype that depend on the rank.
#[test]
fn arrays_of_every_dtype_are_summed() {
    let shapes: [&[usize]; 5] = [&[], &[0], &[1], &[3, 0, 2], &[5, 7]];
    for nodes in [2, 3] {
        let all = run(nodes, |node| {
            let mut leaves = Vec::new();
            let value = |i: usize| (i as f64 - 3.0) * (node.rank() as f64 + 1.0);
            for shape in shapes {
                let len = shape.iter().product();
                let mut push = |array: Result<Array>| leaves.push((format!("x{}", leaves.len()), array.unwrap()));
                macro_rules! push {
                    ($($from:expr),*) => { $(push(Array::from_vec((0..len).map(|i| $from(value(i))).collect(), shape.iter().copied()));)* };
                }
                push!(|x| x as i8, |x| x as i16, |x| x as i32, |x| x as i64);
                push!(|x| x as i8 as u8, |x| x as i16 as u16, |x| x as i32 as u32, |x| x as i64 as u64);
                push!(f16::from_f64, bf16::from_f64, |x| x as f32, |x| x);
            }
            node.all_reduce(Reduction::Sum, leaves).unwrap()
        });
        let factor = (nodes * (nodes + 1) / 2) as f64;
        for sums in &all {
            for (sum, first) in sums.iter().zip(&all[0]) {
                assert_eq!(sum.aval(), first.aval());
                for i in 0..sum.data().len() {
                    let (x, expected) = (sum.data().get(i).unwrap(), (i as f64 - 3.0) * factor);
                    let shift = 64 - sum.dtype().bits() as u32;
                    let wrapped = ((expected as i64) << shift) as u64;
                    let expected = match sum.dtype() {
                        dtype if dtype.is_float() => expected,
                        dtype if dtype.is_signed() => (wrapped as i64 >> shift) as f64,
                        _ => (wrapped >> shift) as f64,
                    };
                    assert_eq!(x.as_f64(), expected, "{}", sum.aval());
                }
            }
        }
    }
}

#[test]
fn means_are_rounded_at_the_end_and_the_same_on_all_nodes() {
    let special = [f32::NAN, f32::INFINITY, -0.0, 1e-45, f32::MAX, 1.0];
    let results = run(3, |node| {
        let third = Array::from_vec(vec![1.0f32 / 3.0 * (node.rank() + 1) as f32; 1000], [1000]).unwrap();
        let halves = Array::from_vec(vec![f16::from_f32(1.0 + node.rank() as f32 / 1024.0)], []).unwrap();
        let special = Array::from_vec(special.to_vec(), [6]).unwrap();
        let names = ["third", "halves", "special"].map(String::from);
        node.all_reduce(Reduction::Mean, names.into_iter().zip([third, halves, special]).collect()).unwrap()
    });
    let sum: f64 = (1..=3).map(|i| f64::from(1.0f32 / 3.0 * i as f32)).sum();
    for result in &results {
        assert_eq!(result[0].as_slice::<f32>().unwrap(), [(sum / 3.0) as f32; 1000]);
        assert_eq!(result[1].as_slice::<f16>().unwrap(), [f16::from_f32(1.0 + 1.0 / 1024.0)]);
        let bits = |xs: &[f32]| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&result[2].as_slice::<f32>().unwrap()[1..]), bits(&special[1..]));
        assert!(result[2].as_slice::<f32>().unwrap()[0].is_nan());
    }
}

/// More elements than one bucket has, and than the buffers of the system hold.
#[test]
fn large_arrays_are_summed_and_sent() {
    let len = (3 << 20) + 1;
    let results = run(3, |node| {
        let x: Vec<f32> = (0..len).map(|i| (i % 1000) as f32 * (node.rank() + 1) as f32).collect();
        let small = Array::scalar(node.rank() as i64);
        let mut leaves = vec![("x".to_string(), Array::from_vec(x, [len]).unwrap()), ("y".to_string(), small)];
        let sums = node.all_reduce(Reduction::Sum, leaves.clone()).unwrap();
        leaves[0].1 = leaves[0].1.reshaped([1, len]).unwrap();
        let sent = node.broadcast(leaves).unwrap();
        (sums, sent)
    });
    for (sums, sent) in results {
        let (x, y) = (sums[0].as_slice::<f32>().unwrap(), sent[0].as_slice::<f32>().unwrap());
        assert!((0..len).all(|i| x[i] == (i % 1000) as f32 * 6.0 && y[i] == (i % 1000) as f32));
        assert_eq!((sums[1].as_slice::<i64>(), sent[1].as_slice::<i64>()), (Some(&[3][..]), Some(&[0][..])));
        assert_eq!(sent[0].shape(), [1, len]);
    }
}

#[test]
fn nodes_that_disagree_get_an_error_and_may_go_on() {
    let messages = run(3, |node| {
        let leaf = |shape: usize| {
            vec![("w".to_string(), Array::full(remat_ir::Literal::from_f64(remat_ir::DType::F32, 1.0), [shape]))]
        };
        let own = if node.rank() == 1 { 3 } else { 2 };
        let shapes = message(node.all_reduce(Reduction::Mean, leaf(own)));
        let operation = match node.rank() {
            2 => message(node.broadcast(leaf(2))),
            _ => message(node.all_reduce(Reduction::Sum, leaf(2))),
        };
        let after = node.all_reduce(Reduction::Sum, leaf(1)).unwrap();
        assert_eq!(after[0].as_slice::<f32>(), Some(&[3.0][..]));
        [shapes, operation]
    });
    assert_eq!(messages[0][0], "all_reduce_mean: the tensor at `w` is f32[2] on this node, 0, and f32[3] on node 1");
    assert_eq!(messages[1][0], "all_reduce_mean: the tensor at `w` is f32[3] on this node, 1, and f32[2] on node 0");
    assert_eq!(messages[2][0], "all_reduce_mean: the tensor at `w` is f32[2] on this node, 2, and f32[3] on node 1");
    let same = "all have to call the same functions in the same order";
    assert_eq!(
        messages[0][1],
        format!("all_reduce_sum: node 2 is in broadcast, and this node, 0, in all_reduce_sum: {same}")
    );
    assert_eq!(
        messages[2][1],
        format!("broadcast: node 0 is in all_reduce_sum, and this node, 2, in broadcast: {same}")
    );
}

/// A mistake of one node alone is an error on all, and nobody waits.
#[test]
fn a_node_that_cannot_call_tells_the_others() {
    let messages = run(3, |node| {
        let array = |is_float| if is_float { Array::scalar(1.0f32) } else { Array::scalar(1i32) };
        let mean = |is_float| node.all_reduce(Reduction::Mean, vec![("step".to_string(), array(is_float))]);
        let dtype = message(mean(node.rank() != 1));
        let long = "x".repeat(if node.rank() == 2 { 1 << 26 } else { 1 });
        let long = message(node.broadcast(vec![(long, array(true))]));
        assert_eq!(mean(true).unwrap()[0].as_slice::<f32>(), Some(&[1.0][..]));
        [dtype, long]
    });
    let of = "all_reduce_mean: i32 at `step` is not a float";
    let told = format!("all_reduce_mean: node 1 has failed to call all_reduce_mean: {of}");
    assert_eq!([0, 1, 2].map(|rank| &*messages[rank][0]), [&told, of, &told]);
    let of = "cluster: a message of 67108887 bytes is longer than 67108864 bytes";
    let told = format!("broadcast: node 2 has failed to call broadcast: {of}");
    assert_eq!([0, 1, 2].map(|rank| &*messages[rank][1]), [&told, &told, of]);
}

/// A name of the coordinator's machine may be a loopback address there, and another address elsewhere. `127.1` stands for such a name,
/// and 127.0.0.2 for the other address.
#[cfg(target_os = "linux")]
#[test]
fn nodes_beside_the_coordinator_are_reached_as_the_coordinator_is() {
    let address = free();
    let port = address.rsplit_once(':').unwrap().1;
    thread::scope(|scope| {
        for (rank, host) in ["127.1", "127.1", "127.0.0.2"].into_iter().enumerate() {
            scope.spawn(move || {
                let config = ClusterConfig {
                    start_timeout: Duration::from_secs(10),
                    ..ClusterConfig::new(format!("{host}:{port}"), rank, 3)
                };
                let node = Node::join(&config).unwrap();
                let sum = node.all_reduce(Reduction::Sum, vec![(String::new(), Array::scalar(1i32))]).unwrap();
                assert_eq!(sum[0].as_slice::<i32>(), Some(&[3][..]));
            });
        }
    });
}

#[test]
fn the_coordinator_waits_for_nodes_that_are_heard_of() {
    let address = free();
    let config = |rank| ClusterConfig { failure_timeout: Duration::from_secs(1), ..config(&address, rank, 2) };
    thread::scope(|scope| {
        scope.spawn(|| drop(Node::join(&config(0)).unwrap()));
        scope.spawn(|| {
            let node = Node::join(&config(1)).unwrap();
            thread::sleep(Duration::from_secs(3));
            node.store().unwrap().put(b"last", b"").unwrap();
        });
    });
}

#[test]
fn dtypes_without_a_sum_or_mean_are_refused() {
    let node = Node::alone();
    let of = |reduction, array: Array, name: &str| message(node.all_reduce(reduction, vec![(name.to_string(), array)]));
    assert_eq!(of(Reduction::Mean, Array::scalar(1i32), "step"), "all_reduce_mean: i32 at `step` is not a float");
    assert_eq!(of(Reduction::Sum, Array::scalar(true), ""), "all_reduce_sum: bool is not a number");
    assert_eq!(of(Reduction::Sum, Array::scalar(1i32), ""), "");
    assert_eq!(node.broadcast(vec![(String::new(), Array::scalar(true))]).unwrap()[0].as_slice(), Some(&[true][..]));
    assert_eq!(message(node.store()), "cluster: a single process has no key-value store");
    node.barrier("b", LONG).unwrap();
}

#[test]
fn a_node_that_leaves_ends_what_waits_for_it() {
    let messages = run(2, |node| {
        let array = vec![(String::new(), Array::scalar(1.0f32))];
        if node.rank() == 0 { message(node.all_reduce(Reduction::Sum, array)) } else { String::new() }
    });
    let expected =
        "cluster: all_reduce_sum has ended on node 0 of 2: another node has left the cluster, or is about to";
    assert_eq!(messages[0], expected);
}

#[test]
fn a_panic_is_a_failure_that_all_others_see() {
    let address = free();
    let failing = {
        let config = config(&address, 1, 3);
        thread::spawn(move || {
            let _node = Node::join(&config).unwrap();
            // No message of a panic on the standard error.
            std::panic::resume_unwind(Box::new(()));
        })
    };
    let others = [0, 2].map(|rank| {
        let config = config(&address, rank, 3);
        thread::spawn(move || {
            let node = Node::join(&config).unwrap();
            let start = Instant::now();
            let errors = match rank {
                0 => message(node.store().unwrap().get(b"k", LONG)),
                _ => message(node.all_reduce(Reduction::Sum, vec![(String::new(), Array::scalar(1.0f32))])),
            };
            assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
            node.store().unwrap().get(b"k", LONG).unwrap_err();
            (errors, message(node.barrier("b", LONG)))
        })
    });
    assert!(failing.join().is_err());
    for other in others {
        let (error, later) = other.join().unwrap();
        assert_eq!(error, "cluster: node 1 of 3 has ended without leaving the cluster");
        assert_eq!(later, error);
    }
}

#[test]
fn nodes_that_do_not_come_are_named() {
    let address = free();
    let one = ClusterConfig { start_timeout: Duration::from_secs(1), ..ClusterConfig::new(&address, 0, 3) };
    assert_eq!(message(Node::join(&one)), "cluster: not all of 3 nodes have joined within 1 s; missing: nodes 1, 2");
    let lost = ClusterConfig { rank: 1, ..one };
    let expected =
        format!("cluster: node 1 of 3 cannot join the coordinator at {address}: Connection refused (os error 111)");
    assert_eq!(message(Node::join(&lost)), expected);
}

#[test]
fn nodes_that_were_told_different_things_are_refused() {
    let address = free();
    let (first, second) = (config(&address, 0, 2), config(&address, 1, 2));
    let zero = thread::spawn(move || Node::join(&first));
    let wrong = Node::join(&config(&address, 1, 3)).unwrap_err().to_string();
    assert_eq!(wrong, "cluster: node 1 is configured for 3 nodes, and the coordinator for 2");
    // The thread of rank 0 has joined when its coordinator answers, or soon after.
    thread::sleep(Duration::from_millis(300));
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    let twice = Node::join(&ClusterConfig { rank: 0, ..config(&address, 0, 2) }).unwrap_err().to_string();
    assert!(twice.starts_with(&format!("cluster: the coordinator cannot listen at {address}: ")), "{twice}");
    let one = Node::join(&second).unwrap();
    let zero = zero.join().unwrap().unwrap();
    assert_eq!((format!("{zero:?}"), format!("{one:?}")), ("node 0 of 2".into(), "node 1 of 2".into()));
    let third = Node::join(&second).unwrap_err().to_string();
    assert!(
        third.starts_with("cluster: there are two nodes of rank 1: the other has joined from 127.0.0.1:"),
        "{third}"
    );
    // The coordinator, which waits for the others, goes last.
    drop(one);
    drop(zero);
}

#[test]
fn configurations_are_checked() {
    assert_eq!(
        message(Node::join(&config("host:1", 2, 2))),
        "cluster: rank 2 is not one of 2 nodes, which are numbered from 0"
    );
    let short = ClusterConfig { failure_timeout: Duration::from_millis(10), ..config("host:1", 0, 2) };
    let expected = "cluster: the failure timeout has to be from 1 to 2^30 seconds";
    assert_eq!(message(Node::join(&short)), expected);
    assert_eq!(Node::join(&config("anything", 0, 1)).unwrap().nodes(), 1);
}
