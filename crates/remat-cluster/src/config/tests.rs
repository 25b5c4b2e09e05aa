use super::*;

fn config(variables: &[(&str, &str)]) -> Result<Option<ClusterConfig>> {
    ClusterConfig::from_variables(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
    })
}

fn found(variables: &[(&str, &str)]) -> Option<(String, usize, usize)> {
    config(variables).unwrap().map(|config| (config.coordinator, config.rank, config.nodes))
}

fn message(variables: &[(&str, &str)]) -> String {
    config(variables).unwrap_err().to_string()
}

const SLURM: [(&str, &str); 6] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_NTASKS", "16"),
    ("SLURM_STEP_NUM_TASKS", "8"),
    ("SLURM_STEP_NODELIST", "cpu[07-08]"),
    ("SLURM_JOB_ID", "4097"),
    ("SLURM_STEP_ID", "2"),
];

const OPEN_MPI: [(&str, &str); 3] =
    [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];

#[test]
fn launchers_say_who_a_process_is() {
    let some = |address: &str, rank, nodes| Some((address.to_string(), rank, nodes));
    assert_eq!(found(&SLURM), some("cpu07:61443", 3, 8));
    assert_eq!(found(&OPEN_MPI), some("127.0.0.1:8476", 1, 2));
    let kubernetes = [("JOB_COMPLETION_INDEX", "2"), ("REMAT_NUM_NODES", "4"), ("REMAT_COORDINATOR", "job-0.svc")];
    assert_eq!(found(&kubernetes), some("job-0.svc:8476", 2, 4));
    // mpirun in a Slurm allocation.
    assert_eq!(found(&[&SLURM[..], &OPEN_MPI].concat()), some("127.0.0.1:8476", 1, 2));
}

#[test]
fn variables_of_remat_come_first() {
    let own = [("REMAT_COORDINATOR", "[::1]:99"), ("REMAT_NODE_ID", "0"), ("REMAT_NUM_NODES", "5")];
    assert_eq!(found(&[&own[..], &SLURM].concat()), Some(("[::1]:99".to_string(), 0, 5)));
    assert_eq!(found(&[&own[..1], &SLURM].concat()), Some(("[::1]:99".to_string(), 3, 8)));
    let timeouts = [("REMAT_START_TIMEOUT", "7"), ("REMAT_FAILURE_TIMEOUT", " 3 ")];
    let config = config(&[&own[..], &timeouts].concat()).unwrap().unwrap();
    assert_eq!([config.start_timeout, config.failure_timeout].map(|timeout| timeout.as_secs()), [7, 3]);
}

#[test]
fn a_process_may_be_by_itself() {
    assert_eq!(found(&[]), None);
    assert_eq!(found(&[("REMAT_NODE_ID", ""), ("REMAT_NUM_NODES", " ")]), None);
    assert_eq!(found(&[("REMAT_NUM_NODES", "1")]), None);
    assert_eq!(found(&[("REMAT_NODE_ID", "0"), ("REMAT_NUM_NODES", "1")]), None);
    // A batch script, not a step.
    assert_eq!(found(&SLURM[..3]), None);
    assert_eq!(found(&[("JOB_COMPLETION_INDEX", "2")]), None);
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let [rank, nodes] = [("REMAT_NODE_ID", "2"), ("REMAT_NUM_NODES", "2")];
    let address = ("REMAT_COORDINATOR", "host");
    assert_eq!(
        message(&[nodes]),
        "cluster: REMAT_NODE_ID is not set: the number of this process in the cluster, from 0"
    );
    assert_eq!(message(&[rank]), "cluster: REMAT_NUM_NODES is not set: the number of processes of the cluster");
    assert_eq!(message(&[address, ("JOB_COMPLETION_INDEX", "2")]), message(&[rank]));
    let missing = "cluster: REMAT_COORDINATOR is not set: the address at which all nodes reach rank 0: ";
    assert_eq!(message(&[rank, nodes]), format!("{missing}<host of rank 0>"));
    let pod = "<job>-0.<subdomain>, the pod of index 0 under the job's headless service";
    assert_eq!(message(&[("JOB_COMPLETION_INDEX", "1"), nodes]), format!("{missing}{pod}"));
    assert_eq!(message(&[rank, nodes, address]), "cluster: rank 2 is not one of 2 nodes, which are numbered from 0");
    assert_eq!(
        message(&[("REMAT_NODE_ID", "-1"), nodes]),
        "cluster: REMAT_NODE_ID is `-1`, which is not an integer of 0 or more"
    );
    for wrong in ["host:", "host:0", "host:70000", "::1", "a b", ":5", "[::1]x:5"] {
        let expected =
            format!("cluster: REMAT_COORDINATOR is `{wrong}`, which is not a host with a port, such as node0:8476");
        assert_eq!(message(&[("REMAT_NODE_ID", "1"), nodes, ("REMAT_COORDINATOR", wrong)]), expected);
    }
    assert_eq!(
        message(&[("REMAT_NODE_ID", "1"), nodes, address, ("REMAT_FAILURE_TIMEOUT", "0")]),
        "cluster: the failure timeout has to be from 1 to 2^30 seconds"
    );
    let far = [OPEN_MPI[0], OPEN_MPI[1], ("OMPI_COMM_WORLD_LOCAL_SIZE", "1")];
    assert_eq!(
        message(&far),
        "cluster: Open MPI does not say on which host rank 0 is: run `mpirun -x REMAT_COORDINATOR=<host of rank 0> ...`"
    );
    assert_eq!(
        message(&[SLURM[0], SLURM[2], ("SLURM_STEP_NODELIST", "cpu[")]),
        "cluster: SLURM_STEP_NODELIST is `cpu[`, which is not a list of hosts"
    );
}
