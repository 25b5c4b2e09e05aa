//! Transfers, which do not change values.

use remat_ir::{DevicePut, MemorySpace};

use crate::value::{Type, Value};
use crate::writer::Writer;

/// A copy in the other memory, if there are two. The annotation is the one that JAX writes.
pub(super) fn device_put(w: &mut Writer, op: &DevicePut, x: &Value) -> Value {
    let out = x.aval.in_memory(op.memory);
    if !w.options.platform.has_host_memory() || out == x.aval {
        return Value { name: x.name, aval: out };
    }
    let text = format!(
        "stablehlo.custom_call @annotate_device_placement({x}) {{backend_config = \"\", has_side_effect = true, \
         mhlo.frontend_attributes = {{_xla_buffer_placement = \"{}\"}}}} : ({}) -> {}",
        memory_kind(op.memory),
        Type(&x.aval),
        Type(&out)
    );
    w.define(text, out)
}

/// XLA's name of a memory space.
pub(crate) fn memory_kind(memory: MemorySpace) -> &'static str {
    match memory {
        MemorySpace::Device => "device",
        MemorySpace::Host => "pinned_host",
    }
}
