//! Sorting.

use remat_ir::{DType, Result, Sort};

use super::Importer;
use super::properties::Node;
use crate::patterns;

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn sort(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let operands = self.all_operands(node)?;
        let dtypes: Vec<DType> = operands.iter().map(|&x| self.aval(x).dtype).collect();
        let body = self.closed_body(node, 0)?;
        let Some(num_keys) = patterns::sort_keys(&body, &dtypes) else {
            return Err(node.unsupported("a sort by another comparison than the ascending one of `jax.lax.sort`"));
        };
        let op = Sort { axis: node.size("dimension")?, num_keys, is_stable: node.bool("is_stable")? };
        let results = self.emit_all(op, &operands)?;
        self.define(node, &results)
    }
}
