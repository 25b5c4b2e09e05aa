//! Calls of a backend's own functions.

use remat_ir::{Result, Unary};

use super::Importer;
use super::properties::Node;

impl<'a, 'm> Importer<'a, 'm> {
    /// Annotations for several devices are identities on one. Other backends' functions are refused by name.
    pub(super) fn custom_call(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let target = String::from_utf8_lossy(node.string("call_target_name")?);
        let operands = self.all_operands(node)?;
        let results = match (&*target, &operands[..]) {
            ("Sharding" | "SPMDFullToShardShape" | "SPMDShardToFullShape" | "LayoutConstraint", &[_])
            | ("xla.sdy.FuncResultSharding" | "annotate_device_placement", &[_]) => operands,
            ("Qr", &[a]) => self.householder(node, a)?.into(),
            ("ProductOfElementaryHouseholderReflectors", &[a, taus]) => vec![self.reflections(node, a, taus)?],
            ("Eigh", &[a]) => self.eigh(node, a)?,
            ("Svd", &[a]) => self.svd(node, a)?,
            ("LuDecomposition", &[a]) => self.lu(node, a)?,
            ("mhlo.erf", &[x]) => vec![self.emit(Unary::Erf, &[x])?],
            _ => {
                let shown: String = target.chars().take(100).filter(|c| !c.is_control()).collect();
                let why = match &*target {
                    target if target.contains("callback") => "a call back into Python",
                    target if target.starts_with("lapack_") || target.starts_with("blas_") => {
                        "a function of the CPU's LAPACK, which JAX writes for its own CPU backend only"
                    }
                    _ => "a function of another backend",
                };
                return Err(node.unsupported(format_args!("`{shown}`, {why}")));
            }
        };
        self.define(node, &results)
    }
}
