//! Profiles as files of other programs.

use std::path::Path;
use std::time::Duration;

use remat::Result;
use remat::files::write_bytes;
use remat::ir::Role;
use remat::report::Profile;
use serde_json::json;

/// Writes a profile in the trace event format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` open: the steps of the forward pass, those
/// that compute something again and those of the derivative on a track each, and the bytes of temporaries over time. The file appears complete
/// or not at all, and replaces one of this name. (Source of the format: the Trace Event Format of the Chromium project.)
///
/// ```
/// use remat::{Tensor, jit};
/// let folder = tempfile::tempdir()?;
/// let (_, profile) = jit(|x: &Tensor| x.exp().sum(..)).profile(Tensor::new([1.0f32, 2.0]))?;
/// remat_io::save_trace(folder.path().join("trace.json"), &profile)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be written.
pub fn save_trace(path: impl AsRef<Path>, profile: &Profile) -> Result<()> {
    let text = events(profile).to_string();
    write_bytes("save_trace", path.as_ref(), text.as_bytes())
}

/// A profile as JSON.
fn events(profile: &Profile) -> serde_json::Value {
    let track = |role: Role| role as u32 + 1;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let name = |role: Role| json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": track(role), "args": {"name": role.name()}});
    let mut events: Vec<serde_json::Value> = [Role::Written, Role::Recomputed, Role::Derivative].map(name).into();
    for step in &profile.steps {
        let (start, scope) = (micros(step.start), step.loc.scope.path());
        let line = step.loc.site.map(|site| site.to_string());
        events.push(json!({
            "name": step.name(), "ph": "X", "pid": 1, "tid": track(step.loc.role), "ts": start, "dur": micros(step.time),
            "args": {"result": step.aval.to_string(), "line": line, "scope": &*scope, "runs": step.runs, "modelled us": micros(step.modelled)},
        }));
        events.push(json!({"name": "temporaries", "ph": "C", "pid": 1, "ts": start, "args": {"bytes": step.live}}));
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}
