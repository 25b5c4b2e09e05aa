//! Processes that work together, on one machine or on many.
//!
//! A cluster is a fixed number of processes, its *nodes*. Each knows its number, its *rank*, and the address of the *coordinator*, a small
//! service that the node of rank 0 runs. The coordinator holds keys and values and barriers, and receives a heartbeat from every node each
//! second, so that all nodes soon know when one has ended. Every two nodes have a connection, over which arrays are summed.
//!
//! [`ClusterConfig::from_env`] reads the configuration of a process from its environment, and [`Node::join`] joins the cluster. XLA's
//! plugins use the [`KeyValueStore`]; the crate `remat` sums trees of tensors with [`Node::all_reduce`].
//!
//! All connections are plain TCP, without encryption or passwords: like those of MPI, NCCL and `jax.distributed` they are for a network
//! that its users trust. The formats are private to one version of the crate, which is checked.
//!
//! Layers, each of which uses only those above it in this list (a test checks this):
//!
//! 1. `slurm`, `config`: the configuration of a process
//! 2. `frame`, `failure`: messages; the failure of the cluster
//! 3. `service`: the coordinator
//! 4. `store`: its client
//! 5. `links`: connections between nodes
//! 6. `wire`: elements as bytes, and their sums
//! 7. `node`, `collective`: membership; collective operations

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
