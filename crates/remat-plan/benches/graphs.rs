//! Plans graphs of the literature for budgets: `cargo bench -p remat-plan --bench graphs -- FOLDER...`.
use remat_plan::{BufferId, BufferKind, BufferNode, Effort, Graph, StepId, StepNode, rematerialize};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let evaluations: usize = std::env::var("EVALUATIONS").ok().and_then(|e| e.parse().ok()).unwrap_or(600_000);
    let wanted: Vec<f64> =
        std::env::var("BUDGETS").unwrap_or("0.9 0.8 0.5 0.3".into()).split(' ').map(|b| b.parse().unwrap()).collect();
    for path in args {
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let list =
            |name: &str| -> Vec<u64> { json[name].as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect() };
        let (cost, mem) = (list("cost"), list("mem"));
        let mut graph = Graph::default();
        for &bytes in &mem {
            graph.buffers.push(BufferNode { bytes: bytes as usize * 64, kind: BufferKind::Temporary });
        }
        for (i, &cost) in cost.iter().enumerate() {
            graph.steps.push(StepNode {
                cost,
                writes: [BufferId::new(i)].into_iter().collect(),
                ..StepNode::default()
            });
        }
        for edge in json["edges"].as_array().unwrap() {
            let (u, v) = (edge[0].as_u64().unwrap() as usize, edge[1].as_u64().unwrap() as usize);
            graph.steps[StepId::new(v)].reads.push(BufferId::new(u));
        }
        let order: Vec<StepId> = graph.steps.indices().collect();
        let all: u64 = cost.iter().sum();
        let peak = remat_plan::peak(&graph, &order);
        assert_eq!(peak as u64 / 64, json["peak_no_remat"].as_u64().unwrap());
        for &budget in &wanted {
            let limit = if budget < 5.0 {
                (peak as f64 * budget) as usize
            } else {
                (budget as usize * 1048576 - json["fixed_kib"].as_u64().unwrap() as usize) * 64
            };
            let start = Instant::now();
            let plan = rematerialize(&graph, &order, limit, Effort { evaluations });
            let seconds = start.elapsed().as_secs_f64();
            let name = path.rsplit('/').next().unwrap();
            match plan {
                Err(e) => println!("{name:40} {budget:5} none  {e} {seconds:.2} s"),
                Ok(plan) => {
                    let judged = plan.judged;
                    println!(
                        "{name:40} {budget:5} {:8.4} % time {} peak {:.4} bound {:.3} % {seconds:.2} s",
                        100.0 * (judged.time as f64 / all as f64 - 1.0),
                        judged.time,
                        judged.peak as f64 / limit as f64,
                        100.0 * (plan.bound as f64 / all as f64 - 1.0)
                    );
                }
            }
        }
    }
}
