//! Functions, their calls, and composites.

use std::sync::Arc;

use remat_ir::{Atom, Call, Eqn, Jaxpr, Jit, Result, TopK, Unary};

use super::frame::{Body, Capture};
use super::properties::Node;
use super::types::malformed;
use super::{Donation, Function, Importer};
use crate::{Attr, AttrId, Operation, Type};

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn call(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let name = node.string("callee")?;
        let operands = self.all_operands(node)?;
        let results = self.call_function(node, name, &operands)?;
        self.define(node, &results)
    }

    /// A composite is one of our operations if it has the name of one, and a call of its decomposition otherwise.
    pub(super) fn composite(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let operands = self.all_operands(node)?;
        let name = node.string("name")?;
        let results = match (str::from_utf8(name).unwrap_or_default(), &operands[..]) {
            ("chlo.top_k", &[x]) if self.is_usual_top_k(node) => {
                let k = self.result_size(node)?;
                self.emit_all(TopK { k }, &[x])?
            }
            (name, &[x]) if self.composite_of(name, x).is_some() => {
                let op = self.composite_of(name, x).unwrap_or(Unary::Erf);
                vec![self.emit(op, &[x])?]
            }
            _ => {
                let decomposition = node.string("decomposition")?;
                self.call_function(node, decomposition, &operands)?
            }
        };
        self.define(node, &results)
    }

    /// The function of a composite's name, for a float.
    fn composite_of(&mut self, name: &str, x: Atom) -> Option<Unary> {
        let op = match name.strip_prefix("chlo.")? {
            "acos" => Unary::Acos,
            "acosh" => Unary::Acosh,
            "asin" => Unary::Asin,
            "asinh" => Unary::Asinh,
            "atan" => Unary::Atan,
            "atanh" => Unary::Atanh,
            "cosh" => Unary::Cosh,
            "digamma" => Unary::Digamma,
            "erf" => Unary::Erf,
            "erf_inv" => Unary::ErfInv,
            "erfc" => Unary::Erfc,
            "lgamma" => Unary::Lgamma,
            "sinh" => Unary::Sinh,
            "tan" => Unary::Tan,
            _ => return None,
        };
        op.takes(self.aval(x).dtype).then_some(op)
    }

    /// Whether the largest come first, along the last dimension. Ours is stable, which a program may but need not ask for.
    fn is_usual_top_k(&self, node: Node<'a, 'm>) -> bool {
        let Some(Attr::Dictionary(attributes)) = node.module.property(node.op, "composite_attributes") else {
            return false;
        };
        attributes.iter().all(|&(name, value)| match (self.text(name), node.module.attribute(value)) {
            (b"k" | b"is_stable", _) => true,
            (b"largest", Attr::Bool(value)) => *value,
            _ => false,
        })
    }

    fn result_size(&self, node: Node<'a, 'm>) -> Result<usize> {
        let avals = node.result_avals()?;
        let last = avals.first().and_then(|aval| aval.shape.last());
        last.copied().ok_or_else(|| node.malformed("the result has no dimension"))
    }

    fn text(&self, id: AttrId) -> &'a [u8] {
        match self.module.attribute(id) {
            Attr::String(text) => text,
            _ => b"",
        }
    }

    fn call_function(&mut self, node: Node<'a, 'm>, name: &'a [u8], operands: &[Atom]) -> Result<Vec<Atom>> {
        let function = self.function(name, node.name)?;
        self.reach(function.height, node.name)?;
        self.grow(function.size, node.name)?;
        let mut ins = Vec::new();
        for &number in &function.constants {
            let aval = self.constants[number].aval().clone();
            ins.push(self.frames.constant(number, &aval));
        }
        ins.extend(operands);
        // A function that only calls another one, as JAX writes some, is that other one.
        if let Some((inner, order)) = forwards(&function.jaxpr) {
            let ins: Vec<Atom> = order.into_iter().filter_map(|i| ins.get(i).copied()).collect();
            return self.emit_all(inner, &ins);
        }
        let name: Arc<str> = String::from_utf8_lossy(name).into();
        self.emit_all(Jit { name, jaxpr: function.jaxpr }, &ins)
    }

    /// A function as a program; it is imported once.
    fn function(&mut self, name: &'a [u8], operation: &str) -> Result<Function> {
        match self.imported.get(name) {
            Some(Some(function)) => return Ok(function.clone()),
            Some(None) => return Err(malformed(operation, "a function calls itself")),
            None => {}
        }
        let op = self.function_of(name, operation)?;
        self.imported.insert(name, None);
        let around = std::mem::take(&mut self.frames);
        // Its size is counted at each of its calls, of which this is none.
        let (deepest, size) = (self.deepest, self.size);
        self.deepest = self.depth;
        let Body { jaxpr, captures } = self.body(op, 0, "func")?;
        let height = self.deepest - self.depth;
        let grown = self.size - size;
        (self.deepest, self.size) = (deepest, size);
        self.frames = around;
        let constants = captures.into_iter().map(|capture| match capture {
            Capture::Constant(number) => Ok(number),
            Capture::Value(_) => Err(malformed("func", "a function uses a value of another one")),
        });
        let function =
            Function { jaxpr: Arc::new(jaxpr), constants: constants.collect::<Result<_>>()?, height, size: grown };
        self.imported.insert(name, Some(function.clone()));
        Ok(function)
    }

    /// A call of a program that stands for one operation of this name and of this operand; it is made once for each line of the user, so that the import
    /// of a file with many such operations stays small.
    pub(super) fn expansion(
        &mut self,
        node: Node<'a, 'm>,
        name: &'static str,
        x: Atom,
        expand: impl FnOnce(&mut Self, Atom) -> Result<Vec<Atom>>,
    ) -> Result<Vec<Atom>> {
        let (loc, aval) = (self.frames.top().builder.loc, self.aval(x));
        let avals = [aval.clone()].into_iter().chain(node.result_avals()?).collect();
        let key = ((loc.site, loc.scope), name, avals);
        let jaxpr = match self.expansions.get(&key) {
            Some(jaxpr) => jaxpr.clone(),
            None => {
                let around = std::mem::take(&mut self.frames);
                self.frames.push();
                self.frames.top().builder.loc = loc;
                let input = self.frames.top().builder.input(aval);
                let outs = expand(self, input)?;
                let mut jaxpr = self.frames.finish(outs).jaxpr;
                jaxpr.eqns.shrink_to_fit();
                let jaxpr = Arc::new(jaxpr);
                self.frames = around;
                self.expansions.insert(key, jaxpr.clone());
                jaxpr
            }
        };
        self.grow(size(&jaxpr), node.name)?;
        self.emit_all(Jit { name: name.into(), jaxpr }, &[x])
    }

    /// What a function's attributes say about the memory of its arguments.
    pub(super) fn donations(&self, function: &'m Operation) -> Result<Vec<Donation>> {
        let Some(Attr::Type(ty)) = self.module.property(function, "function_type") else {
            return Err(malformed("func", "main has no type"));
        };
        let Type::Function(inputs, outputs) = self.module.ty(*ty) else {
            return Err(malformed("func", "main has a type that is not one of a function"));
        };
        let mut donations = vec![Donation::No; inputs.len()];
        let Some(Attr::Array(rows)) = self.module.property(function, "arg_attrs") else { return Ok(donations) };
        for (donation, &row) in donations.iter_mut().zip(rows) {
            let Attr::Dictionary(attributes) = self.module.attribute(row) else { continue };
            for &(name, value) in attributes {
                match (self.text(name), self.module.attribute(value)) {
                    (b"tf.aliasing_output", Attr::Integer(_, result)) => {
                        let result = usize::try_from(*result).ok().filter(|&result| result < outputs.len());
                        let result = result.ok_or_else(|| malformed("func", "an argument is donated to no result"))?;
                        *donation = Donation::Result(result);
                    }
                    (b"jax.buffer_donor", Attr::Bool(true)) => *donation = Donation::Any,
                    _ => {}
                }
            }
        }
        Ok(donations)
    }
}

/// The number of equations, with those of bodies.
fn size(jaxpr: &Jaxpr) -> u64 {
    let of = |eqn: &Eqn| 1 + eqn.op.bodies().into_iter().map(|body| size(body)).sum::<u64>();
    jaxpr.eqns.iter().map(of).sum()
}

/// The call that a program consists of, and which of its inputs each operand is.
fn forwards(jaxpr: &Jaxpr) -> Option<(Call, Vec<usize>)> {
    let [eqn] = &jaxpr.eqns[..] else { return None };
    let remat_ir::Op::Call(call @ Call::Jit(_)) = &eqn.op else { return None };
    if !jaxpr.outs.iter().copied().eq(eqn.outs.iter().map(|&var| Atom::Var(var))) {
        return None;
    }
    let place = |atom: &Atom| jaxpr.ins.iter().position(|&var| Atom::Var(var) == *atom);
    Some((call.clone(), eqn.ins.iter().map(place).collect::<Option<_>>()?))
}
