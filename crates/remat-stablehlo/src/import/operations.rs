//! Which operation is imported where.

use remat_ir::{Atom, Result};

use super::Importer;
use super::properties::Node;
use super::types::{malformed, unsupported};
use crate::Operation;

impl<'a, 'm> Importer<'a, 'm> {
    /// Imports one operation. Returns the outputs of the body if it is its end.
    pub(super) fn operation(&mut self, op: &'m Operation) -> Result<Option<Vec<Atom>>> {
        let loc = self.loc(op);
        self.frames.top().builder.loc = loc;
        self.dispatch(op).map_err(|error| error.at(loc))
    }

    fn dispatch(&mut self, op: &'m Operation) -> Result<Option<Vec<Atom>>> {
        let (dialect, full_name) = self.module.name(op);
        let name = match (dialect, full_name) {
            ("vhlo", name) => without_version(name),
            // Identities on one device.
            ("sdy", "sharding_constraint" | "reshard" | "sharding_group" | "propagation_barrier")
            | ("builtin", "unrealized_conversion_cast") => "identity",
            _ => {
                let message = format!("an operation of the dialect {dialect}");
                return Err(unsupported(&format!("{dialect}.{full_name}"), message));
            }
        };
        let node = Node { module: self.module, op, name };
        let is_known = self.module.tables.names[op.name.0 as usize].properties.is_some();
        if dialect == "vhlo" && !is_known {
            return Err(unsupported(full_name, "an operation that is newer than this reader"));
        }
        match name {
            "return" => return self.all_operands(node).map(Some),
            "identity" => {
                let operands = self.all_operands(node)?;
                self.define(node, &operands)?;
            }
            "constant" => self.constant(node)?,
            "iota" | "broadcast_in_dim" | "reshape" | "transpose" | "reverse" | "concatenate" | "pad"
            | "get_dimension_size" => self.shape_operation(node)?,
            "slice" | "dynamic_slice" | "dynamic_update_slice" | "gather" | "scatter" => self.indexing(node)?,
            "reduce" => self.reduce(node)?,
            "reduce_window" | "select_and_scatter" => self.window(node)?,
            "sort" => self.sort(node)?,
            "while" => self.while_loop(node)?,
            "case" | "if" => self.branches(node)?,
            "optimization_barrier" => {
                let operands = self.all_operands(node)?;
                let results = self.emit_all(remat_ir::OptimizationBarrier, &operands)?;
                self.define(node, &results)?;
            }
            "call" => self.call(node)?,
            "composite" => self.composite(node)?,
            "custom_call" => self.custom_call(node)?,
            "dot_general" | "dot" | "convolution" | "cholesky" | "triangular_solve" => self.linear_algebra(node)?,
            "all_reduce"
            | "all_gather"
            | "all_to_all"
            | "reduce_scatter"
            | "collective_permute"
            | "collective_broadcast"
            | "collective_reduce"
            | "cross-replica-sum"
            | "partition_id"
            | "replica_id" => self.on_one_device(node)?,
            "fft" | "complex" | "real" | "imag" => return Err(node.unsupported("complex numbers")),
            "rng_bit_generator" => self.random_bits(node)?,
            "rng" => {
                return Err(node.unsupported("random numbers without a key, of the backend's own generator"));
            }
            _ if name.starts_with("dynamic_") || matches!(name, "real_dynamic_slice" | "set_dimension_size") => {
                return Err(node.unsupported("sizes that are not known before the run (dynamic shapes)"));
            }
            "after_all" | "create_token" | "infeed" | "outfeed" | "send" | "recv" | "async_start" | "async_done" => {
                return Err(node.unsupported("side effects"));
            }
            _ => self.elementwise(node)?,
        }
        Ok(None)
    }

    /// Operations between devices, of which there is one: it gets what it gives.
    fn on_one_device(&mut self, node: Node<'a, 'm>) -> Result<()> {
        use remat_ir::{DType, Literal};
        if matches!(node.name, "partition_id" | "replica_id") {
            return self.define(node, &[Literal::from_i128(DType::U32, 0).into()]);
        }
        let sends = if node.name == "collective_permute" { node.pairs("source_target_pairs")? } else { vec![(0, 0)] };
        if sends[..] != [(0, 0)] {
            return Err(node.unsupported("an operation between devices; the program has to be one for one device"));
        }
        let operands = self.all_operands(node)?;
        self.define(node, &operands)
    }

    fn constant(&mut self, node: Node<'a, 'm>) -> Result<()> {
        use super::frame::Known;
        use super::properties::{Elements, elements};
        let (ty, data) = node.tensor("value")?;
        let aval = super::types::aval(self.module, self.module.ty(ty), node.name)?;
        let [result] = node.op.results[..] else { return Err(malformed(node.name, "has one result")) };
        if node.result_avals()?[..] != [aval.clone()] {
            return Err(node.malformed(format_args!("the value is {aval} and the result is not")));
        }
        let known = match elements(node.name, &aval, data)? {
            Elements::One(literal) if aval.rank() == 0 => Known::Atom(literal.into()),
            Elements::One(literal) => Known::Splat(literal, aval.shape),
            Elements::All(data) => {
                let number = match node.op.properties.first().copied().flatten() {
                    Some(id) => {
                        let constants = &mut self.constants;
                        match self.constant_numbers.get(&id) {
                            Some(&number) => number,
                            None => {
                                constants.push(remat_ir::Array::new(aval.clone(), data)?);
                                self.constant_numbers.insert(id, constants.len() - 1);
                                constants.len() - 1
                            }
                        }
                    }
                    None => return Err(malformed(node.name, "the attribute value is missing")),
                };
                Known::Atom(self.frames.constant(number, &aval))
            }
        };
        self.frames.define(result, known);
        Ok(())
    }
}

/// `add` of `add_v1`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}
