//! Training on several hosts: trees of tensors, summed over the processes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use remat_ir::{Array, Result};

use crate::Tree;
use crate::trace::{Tensor, current_loc, rebuild};
use crate::tree::leaves;

pub use remat_cluster::{ClusterConfig, KeyValueStore};
use remat_cluster::{Node, Reduction};

/// The processes that train one model together, as seen by one of them.
///
/// Each process has the whole model, computes gradients for its own part of a batch, and takes a step with the mean of all gradients. Start
/// with the parameters of one process everywhere ([`Cluster::broadcast`]). From then on they stay bitwise the same, since the results of
/// sums are bitwise the same on all processes.
///
/// ```
/// use remat::cluster::Cluster;
/// use remat::{Tensor, jit, value_and_grad};
///
/// fn loss(w: &Tensor, x: &Tensor) -> Tensor {
///     (w * x - 1).square().mean(..)
/// }
///
/// // Under `remat launch`, `srun`, `mpirun` or Kubernetes one of several; otherwise a process by itself.
/// let cluster = Cluster::from_env()?;
/// let step = jit(|(w, x): &(Tensor, Tensor)| value_and_grad(|w: &Tensor| loss(w, x))(w));
/// let mut w = cluster.broadcast(&Tensor::from(0.0f32))?;
/// for _ in 0..3 {
///     let part = Tensor::from(vec![1.0f32 + cluster.rank() as f32; 4]);
///     let (loss, gradient) = cluster.all_reduce_mean(&step.call((w.clone(), part))?)?;
///     w = w - gradient * 0.1;
///     if cluster.rank() == 0 {
///         println!("{loss}");
///     }
/// }
/// # Ok::<(), remat::Error>(())
/// ```
///
/// All processes must call the same functions in the same order; if one cannot, for example because of a failed tensor, all get an error.
/// If a process ends, the others get an error that names it within a second or two. If its host or network is lost, they get it within the
/// failure timeout of the [`ClusterConfig`] plus a second, which is 11 seconds by default.
#[derive(Clone, Debug)]
pub struct Cluster(Node);

impl Cluster {
    /// Joins the cluster described by the environment of this process, in the variables of [`ClusterConfig::from_variables`], or returns a
    /// process by itself if the environment describes none. It waits until all processes have joined.
    ///
    /// # Errors
    /// If variables are wrong or missing, or not all processes join.
    #[track_caller]
    pub fn from_env() -> Result<Cluster> {
        let loc = current_loc();
        match ClusterConfig::from_env().map_err(|error| error.at(loc))? {
            Some(config) => Cluster::join(&config),
            None => Ok(Cluster::alone()),
        }
    }

    /// Joins a cluster, and waits until all of its processes have joined.
    ///
    /// # Errors
    /// If not all processes join, or their configurations differ.
    #[track_caller]
    pub fn join(config: &ClusterConfig) -> Result<Cluster> {
        let here = current_loc();
        Node::join(config).map(Cluster).map_err(|error| error.at(here))
    }

    /// A process by itself, for which sums and means return their argument.
    pub fn alone() -> Cluster {
        Cluster(Node::alone())
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// The number of processes, which are the nodes of the cluster.
    pub fn nodes(&self) -> usize {
        self.0.nodes()
    }

    /// The tree whose leaves are the sums of the corresponding leaves of all processes, bitwise the same on each. Floats are summed in f64
    /// in the order of ranks and rounded to the dtype at the end; integers wrap around. The results are in the host's memory.
    ///
    /// # Errors
    /// If a leaf is of bools, traced, abstract or failed; if the trees of two processes differ in leaves, dtypes or shapes (the error names
    /// the leaf); if a process ends or leaves. A mistake of one process is an error on all.
    ///
    /// ```
    /// use remat::{Tensor, cluster::Cluster};
    /// let cluster = Cluster::from_env()?;
    /// let count = cluster.all_reduce_sum(&Tensor::from(1i32))?;
    /// assert_eq!(count.item::<i32>()? as usize, cluster.nodes());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn all_reduce_sum<T: Tree>(&self, tree: &T) -> Result<T> {
        self.exchange("all_reduce_sum", tree, |node, leaves| node.all_reduce(Reduction::Sum, leaves))
    }

    /// The tree whose leaves are the means of the corresponding leaves of all processes: sums as in [`Cluster::all_reduce_sum`], divided in
    /// f64 and rounded to the dtype at the end. If all parts of a batch have the same size, the mean of their gradients is the gradient of
    /// the batch's mean.
    ///
    /// # Errors
    /// As [`Cluster::all_reduce_sum`]; if a leaf is of integers.
    #[track_caller]
    pub fn all_reduce_mean<T: Tree>(&self, tree: &T) -> Result<T> {
        self.exchange("all_reduce_mean", tree, |node, leaves| node.all_reduce(Reduction::Mean, leaves))
    }

    /// The tree of the process with rank 0, on all processes. Leaves may have any dtype.
    ///
    /// # Errors
    /// As [`Cluster::all_reduce_sum`].
    #[track_caller]
    pub fn broadcast<T: Tree>(&self, tree: &T) -> Result<T> {
        self.exchange("broadcast", tree, Node::broadcast)
    }

    /// Waits until all processes have reached the barrier with this name. The name can be used again afterwards.
    ///
    /// # Errors
    /// If not all arrive within this time (the error lists the missing ones); if one ends or leaves.
    #[track_caller]
    pub fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        let here = current_loc();
        self.0.barrier(name, timeout).map_err(|error| error.at(here))
    }

    /// The keys and values that all processes share. XLA's plugins use them to find the GPUs of other hosts (`remat_xla::Xla::join`).
    ///
    /// # Errors
    /// If this process is by itself.
    #[track_caller]
    pub fn store(&self) -> Result<&Arc<KeyValueStore>> {
        let here = current_loc();
        self.0.store().map_err(|error| error.at(here))
    }

    /// Fails if the cluster has failed. Call it in a process that computes for long between sums.
    ///
    /// # Errors
    /// The failure of the cluster.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let here = current_loc();
        self.0.check().map_err(|error| error.at(here))
    }

    /// From now on this process exits with code 1 and a line on standard error when another process fails. Use it if the process waits for
    /// others in a way that cannot be interrupted, such as collectives of a GPU.
    pub fn exit_on_failure(&self) {
        self.0.exit_on_failure();
    }

    #[track_caller]
    fn exchange<T: Tree>(
        &self,
        operation: &str,
        tree: &T,
        run: impl FnOnce(&Node, Vec<(String, Array)>) -> Result<Vec<Array>>,
    ) -> Result<T> {
        let here = current_loc();
        let mut named = Vec::new();
        for (path, leaf) in leaves(tree) {
            let array = leaf.read(operation).map_err(|reason| self.0.refuse(operation, reason))?;
            named.push((path.to_string(), array.clone()));
        }
        let results = run(&self.0, named).map_err(|error| error.at(here))?;
        rebuild(tree, results.into_iter().map(Tensor::from_array).collect())
    }
}
