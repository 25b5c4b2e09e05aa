//! Profiles as files of other programs.

use remat_ir::{Profile, Role};
use serde_json::json;

/// A profile in the trace event format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` open: the steps of the forward pass, those that
/// compute something again and those of the derivative on a track each, and the bytes of temporaries over time.
/// (Source of the format: the Trace Event Format of the Chromium project.)
///
/// ```
/// use remat::{Tensor, jit, report};
/// let (_, profile) = jit(|x: &Tensor| x.exp().sum(..)).profile(Tensor::new([1.0f32, 2.0]))?;
/// let text = report::trace_events(&profile);
/// assert!(text.starts_with("{\"traceEvents\":["));
/// # Ok::<(), remat::Error>(())
/// ```
pub fn trace_events(profile: &Profile) -> String {
    let track = |role: Role| role as u32 + 1;
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let name = |role: Role| json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": track(role), "args": {"name": role.name()}});
    let mut events: Vec<serde_json::Value> = [Role::Written, Role::Recomputed, Role::Derivative].map(name).into();
    for step in &profile.steps {
        let (start, scope) = (micros(step.start), step.loc.scope.path());
        let line = step.loc.site.map(|site| site.to_string());
        events.push(json!({
            "name": step.operation, "ph": "X", "pid": 1, "tid": track(step.loc.role), "ts": start, "dur": micros(step.time),
            "args": {"result": step.aval.to_string(), "line": line, "scope": &*scope, "modelled us": micros(step.modelled)},
        }));
        events.push(json!({"name": "temporaries", "ph": "C", "pid": 1, "ts": start, "args": {"bytes": step.live}}));
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string()
}
