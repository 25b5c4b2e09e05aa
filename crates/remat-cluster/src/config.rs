//! The configuration of a process in a cluster.

use std::env;
use std::net::IpAddr;
use std::time::Duration;

use remat_ir::Result;

use crate::error;
use crate::slurm::first_host;

/// The default port of a coordinator, also used by `jax.distributed` on TPUs.
const PORT: u16 = 8476;

/// The rank of a process in a cluster, and the address at which the nodes meet.
///
/// ```
/// use remat_cluster::ClusterConfig;
/// let set = |name: &str| match name {
///     "REMAT_COORDINATOR" => Some("10.0.0.1:4000".to_string()),
///     "REMAT_NODE_ID" => Some("1".to_string()),
///     "REMAT_NUM_NODES" => Some("2".to_string()),
///     _ => None,
/// };
/// assert_eq!(ClusterConfig::from_variables(set)?, Some(ClusterConfig::new("10.0.0.1:4000", 1, 2)));
/// // Without any of these variables the process is not in a cluster.
/// assert_eq!(ClusterConfig::from_variables(|_| None)?, None);
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The address of the node of rank 0, as `host:port`, for all nodes.
    pub coordinator: String,
    /// The number of this node, from 0.
    pub rank: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// How long a node waits until all have joined; 5 minutes by default.
    pub start_timeout: Duration,
    /// How long a node may be silent until it counts as failed; 10 seconds by default. The end of a process is noticed within a second;
    /// this is for lost hosts and networks.
    pub failure_timeout: Duration,
}

/// The variables that a launcher sets for each process.
struct Launcher {
    /// A variable that is only set if the launcher started this process. A batch script of Slurm has a rank too, but no step.
    evidence: &'static str,
    rank: &'static str,
    nodes: Option<&'static str>,
}

const LAUNCHERS: [Launcher; 3] = [
    Launcher { evidence: "OMPI_COMM_WORLD_RANK", rank: "OMPI_COMM_WORLD_RANK", nodes: Some("OMPI_COMM_WORLD_SIZE") },
    Launcher { evidence: "SLURM_STEP_NODELIST", rank: "SLURM_PROCID", nodes: Some("SLURM_STEP_NUM_TASKS") },
    Launcher { evidence: "JOB_COMPLETION_INDEX", rank: "JOB_COMPLETION_INDEX", nodes: None },
];

impl ClusterConfig {
    /// A node with the default timeouts.
    pub fn new(coordinator: impl Into<String>, rank: usize, nodes: usize) -> ClusterConfig {
        ClusterConfig {
            coordinator: coordinator.into(),
            rank,
            nodes,
            start_timeout: Duration::from_secs(300),
            failure_timeout: Duration::from_secs(10),
        }
    }

    /// [`ClusterConfig::from_variables`] with the environment of this process.
    ///
    /// # Errors
    /// As [`ClusterConfig::from_variables`].
    pub fn from_env() -> Result<Option<ClusterConfig>> {
        ClusterConfig::from_variables(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// The configuration of a process with these environment variables; `None` if it is a single process. Empty variables count as not set.
    ///
    /// | | rank | nodes | coordinator |
    /// |---|---|---|---|
    /// | `remat launch`, by hand | `REMAT_NODE_ID` | `REMAT_NUM_NODES` | `REMAT_COORDINATOR`, its port 8476 unless it has one |
    /// | Open MPI (`mpirun`) | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | this machine, if all nodes are on it (`OMPI_COMM_WORLD_LOCAL_SIZE`) |
    /// | Slurm (`srun`) | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS` | the first host of `SLURM_STEP_NODELIST`, a port by `SLURM_JOB_ID` and `SLURM_STEP_ID` |
    /// | Kubernetes (indexed job) | `JOB_COMPLETION_INDEX` | | |
    ///
    /// Each of the three is taken from the first row that has it, so that the variables of `remat` complete those of a launcher.
    /// `REMAT_START_TIMEOUT` and `REMAT_FAILURE_TIMEOUT` are the two timeouts in seconds.
    ///
    /// # Errors
    /// If a variable is invalid, or one is missing while others are set; the message says which.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<ClusterConfig>> {
        let variable = |name: &str| variable(name).map(|value| value.trim().to_string()).filter(|v| !v.is_empty());
        let number = |name: &str| variable(name).map(|value| parsed(name, &value)).transpose();
        let launcher = LAUNCHERS.iter().find(|launcher| variable(launcher.evidence).is_some());
        let rank = match (number("REMAT_NODE_ID")?, launcher) {
            (Some(rank), _) => Some(rank),
            (None, Some(launcher)) => number(launcher.rank)?,
            (None, None) => None,
        };
        let nodes = match (number("REMAT_NUM_NODES")?, launcher.and_then(|launcher| launcher.nodes)) {
            (Some(nodes), _) => Some(nodes),
            (None, Some(name)) => number(name)?,
            (None, None) => None,
        };
        let given = variable("REMAT_COORDINATOR");
        let (rank, nodes) = match (rank, nodes) {
            // The index of a Kubernetes job does not imply a cluster: indexed jobs also run independent pods.
            (_, None) if given.is_none() && variable("REMAT_NODE_ID").is_none() => return Ok(None),
            (_, Some(1)) if rank.is_none_or(|rank| rank == 0) => return Ok(None),
            (Some(rank), Some(nodes)) => (rank, nodes),
            (Some(_), None) => {
                return Err(error("REMAT_NUM_NODES is not set: the number of processes of the cluster"));
            }
            (None, _) => {
                return Err(error("REMAT_NODE_ID is not set: the number of this process in the cluster, from 0"));
            }
        };
        let coordinator = match given {
            Some(address) => with_port(&address)?,
            None => derived(&variable)?,
        };
        let mut config = ClusterConfig::new(coordinator, rank, nodes);
        for (name, timeout) in
            [("REMAT_START_TIMEOUT", &mut config.start_timeout), ("REMAT_FAILURE_TIMEOUT", &mut config.failure_timeout)]
        {
            if let Some(seconds) = number(name)? {
                *timeout = Duration::from_secs(seconds as u64);
            }
        }
        config.check()?;
        Ok(Some(config))
    }

    /// Whether the coordinator's address implies that all nodes are on one machine. A name that resolves to a loopback address here may
    /// resolve to another one elsewhere.
    pub(crate) fn is_local(&self) -> bool {
        let host = self.coordinator.rsplit_once(':').map_or(&*self.coordinator, |(host, _)| host);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// Fails unless the rank is below the number of nodes, and the timeouts are at least a second.
    pub(crate) fn check(&self) -> Result<()> {
        let &ClusterConfig { rank, nodes, start_timeout, failure_timeout, .. } = self;
        if rank >= nodes {
            let nodes = remat_ir::counted(nodes, "node");
            return Err(error(format!("rank {rank} is not one of {nodes}, which are numbered from 0")));
        }
        for (timeout, name) in [(start_timeout, "start"), (failure_timeout, "failure")] {
            if timeout < Duration::from_secs(1) || timeout > Duration::from_secs(1 << 30) {
                return Err(error(format!("the {name} timeout has to be from 1 to 2^30 seconds")));
            }
        }
        Ok(())
    }
}

fn parsed(name: &str, value: &str) -> Result<usize> {
    value.parse().map_err(|_| error(format!("{name} is `{value}`, which is not an integer of 0 or more")))
}

/// The address of a coordinator with its port.
fn with_port(address: &str) -> Result<String> {
    let invalid =
        || error(format!("REMAT_COORDINATOR is `{address}`, which is not a host with a port, such as node0:{PORT}"));
    // An IPv6 address is in brackets, so the colon before a port is outside of them.
    let (host, port) = match (address.rsplit_once(':'), address.ends_with(']')) {
        (Some((host, port)), false) => (host, port.parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(invalid)?),
        _ => (address, PORT),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.is_empty() || bare.is_none() && host.contains([':', '[', ']']) || host.contains(char::is_whitespace) {
        return Err(invalid());
    }
    Ok(format!("{host}:{port}"))
}

/// The address of the coordinator, if a launcher gives the first node.
fn derived(variable: &impl Fn(&str) -> Option<String>) -> Result<String> {
    let number = |name: &str| variable(name).and_then(|value| value.parse::<u64>().ok());
    if variable("OMPI_COMM_WORLD_RANK").is_some() {
        if variable("OMPI_COMM_WORLD_LOCAL_SIZE") == variable("OMPI_COMM_WORLD_SIZE") {
            return Ok(format!("127.0.0.1:{PORT}"));
        }
        let message =
            "Open MPI does not say on which host rank 0 is: run `mpirun -x REMAT_COORDINATOR=<host of rank 0> ...`";
        return Err(error(message));
    }
    if let Some(list) = variable("SLURM_STEP_NODELIST") {
        let host = first_host(&list);
        let host =
            host.ok_or_else(|| error(format!("SLURM_STEP_NODELIST is `{list}`, which is not a list of hosts")))?;
        // Above the ports that systems assign to connections. Jobs that share a host get different ports.
        let job = number("SLURM_JOB_ID").unwrap_or(0).wrapping_add(number("SLURM_STEP_ID").unwrap_or(0));
        return Ok(format!("{host}:{}", 61_440 + job % 4_096));
    }
    let example = if variable("JOB_COMPLETION_INDEX").is_some() {
        "<job>-0.<subdomain>, the pod of index 0 under the job's headless service"
    } else {
        "<host of rank 0>"
    };
    Err(error(format!("REMAT_COORDINATOR is not set: the address at which all nodes reach rank 0: {example}")))
}

#[cfg(test)]
mod tests;
