//! Processes that work together, on one machine or on many.
//!
//! A cluster is a fixed number of processes, its *nodes*. Each knows its number, its *rank*, and the address of the *coordinator*, a small
//! service that the node of rank 0 runs: it holds keys and values, barriers, and hears of every node each second, so that all of
//! them know soon when one has ended. Between each two nodes there is a connection, over which arrays are summed.
//!
//! [`ClusterConfig::from_env`] reads who a process is from its environment, and [`Node::join`] meets the others. XLA's plugins use the
//! [`KeyValueStore`]; the crate `remat` sums trees of tensors with [`Node::all_reduce`].
//!
//! All connections are plain TCP, without encryption or passwords: like those of MPI, NCCL and `jax.distributed` they are for a network
//! that its users trust. The formats are the crate's own and the same for one version of it alone, which is checked.
//!
//! Layers, each using only those above it in this list (a test holds this):
//!
//! 1. `slurm`, `config`: who a process is
//! 2. `frame`, `failure`: messages; what ended the cluster
//! 3. `service`: the coordinator
//! 4. `store`: its client
//! 5. `links`: connections between nodes
//! 6. `wire`: elements as bytes, and their sums
//! 7. `node`, `collective`: membership; what all nodes do together

mod collective;
mod config;
mod failure;
mod frame;
mod links;
mod node;
mod service;
mod slurm;
mod store;
mod wire;

pub use collective::Reduction;
pub use config::ClusterConfig;
pub use node::Node;
pub use store::KeyValueStore;

use remat_ir::{Error, ErrorKind};

/// An error of the cluster.
fn error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Cluster, "cluster", message)
}
