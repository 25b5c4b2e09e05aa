//! StableHLO as programs of `remat`.
//!
//! Every operation of the file becomes one operation here or a few. Functions become calls of programs, which are imported once; regions
//! become closed bodies. What the language does not have is an error of kind [`ErrorKind::Unsupported`](remat_ir::ErrorKind::Unsupported)
//! with the operation and the user's line.
//!
//! A body that stands for one of our operations, such as that of a sum or of a sort, is compared with the body that JAX writes, operation by
//! operation ([`patterns`](crate::patterns)). One that is nearly the same is applied element by element, and that of a sort is refused.

mod build;
mod calls;
mod control;
mod custom;
mod eigh;
mod elementwise;
mod folding;
mod frame;
mod householder;
mod indexing;
mod jacobi;
mod linalg;
mod locations;
mod lu;
mod operations;
mod properties;
mod random;
mod reductions;
mod scattering;
mod shapes;
mod sorting;
mod svd;
mod types;
mod windows;

use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{Array, Atom, Aval, Jaxpr, Loc, Op, Result, Scope, Site};

use crate::{Attr, AttrId, Module, Operation, Region, ValueId};
use frame::{Body, Capture, Frames, Known};
use properties::Node;
use types::{malformed, unsupported};

/// How deep calls and regions may be nested in each other.
const DEPTH: usize = 200;

/// The most operations of a program whose calls are all replaced by what they call, which is some hundred megabytes. A short file may stand for far
/// more: each of its functions may call the one before twice.
const SIZE: u64 = 1 << 20;

/// The stack that is kept free for each level of nesting, and the size of a new piece.
const STACK: (usize, usize) = (256 << 10, 4 << 20);

/// Whether the memory of an input may be used for a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Donation {
    /// The caller keeps the input.
    No,
    /// The caller gives it up, for any result.
    Any,
    /// The caller gives it up, for the result of this number.
    Result(usize),
}

/// How a program is imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImportOptions {
    /// Whether equations have the lines of the file as their locations. Lines are kept as long as the process lives.
    pub locations: bool,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions { locations: true }
    }
}

/// A program that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program. Its first inputs are the array constants, then come those of the function `main`.
    pub jaxpr: Jaxpr,
    /// The array constants.
    pub constants: Vec<Array>,
    /// What happens to the memory of each input that is not a constant.
    pub donations: Vec<Donation>,
}

/// Imports the function `main` of a module.
///
/// # Errors
/// If an operation or a type has no counterpart (kind `Unsupported`), or the module contradicts itself (kind `Parse`).
pub fn import(module: &Module<'_>, options: ImportOptions) -> Result<Imported> {
    let mut importer = Importer::new(module, options)?;
    let main = importer.function_of(b"main", "module")?;
    let donations = importer.donations(main)?;
    let body = importer.body(main, 0, "func")?;
    let constants = body.captures.iter().map(|capture| match capture {
        Capture::Constant(number) => Ok(importer.constants[*number].clone()),
        Capture::Value(_) => Err(malformed("func", "main uses a value of another function")),
    });
    let constants = constants.collect::<Result<_>>()?;
    Ok(Imported { jaxpr: body.jaxpr, constants, donations })
}

/// A number among the attributes of the module.
fn module_number(module: &Module<'_>, outer: &Operation, name: &str) -> Option<i64> {
    let Attr::Dictionary(attributes) = module.attribute(outer.dictionary?) else { return None };
    let is_named = |id: AttrId| matches!(module.attribute(id), Attr::String(text) if *text == name.as_bytes());
    let &(_, value) = attributes.iter().find(|&&(key, _)| is_named(key))?;
    match module.attribute(value) {
        Attr::Integer(_, number) => Some(*number),
        _ => None,
    }
}

/// A function of the file as a program, with the constants that it takes in front.
#[derive(Clone)]
struct Function {
    jaxpr: Arc<Jaxpr>,
    constants: Vec<usize>,
    /// How deep calls and bodies are nested in it.
    height: usize,
    /// Its operations, with those of each call.
    size: u64,
}

/// The state of an import.
struct Importer<'a, 'm> {
    module: &'m Module<'a>,
    options: ImportOptions,
    functions: HashMap<&'a [u8], &'m Operation>,
    /// Functions that are imported; `None` while that is going on.
    imported: HashMap<&'a [u8], Option<Function>>,
    /// Programs that stand for one operation, by its location, their names, and the avals of the operand and the results.
    expansions: HashMap<((Option<Site>, Scope), &'static str, Vec<Aval>), Arc<Jaxpr>>,
    constants: Vec<Array>,
    /// The number of the constant of each attribute.
    constant_numbers: HashMap<AttrId, usize>,
    frames: Frames,
    depth: usize,
    /// The greatest depth in the present function, and the operations so far, with those of calls.
    deepest: usize,
    size: u64,
}

impl<'a, 'm> Importer<'a, 'm> {
    fn new(module: &'m Module<'a>, options: ImportOptions) -> Result<Importer<'a, 'm>> {
        let [outer] = &module.block.operations[..] else {
            return Err(malformed("module", "the file has not one module"));
        };
        for name in ["mhlo.num_partitions", "mhlo.num_replicas"] {
            if let Some(count) = module_number(module, outer, name).filter(|&count| count > 1) {
                return Err(unsupported("module", format_args!("a program for {count} devices")));
            }
        }
        let mut functions = HashMap::new();
        for op in outer.regions.iter().flat_map(|region| &region.blocks).flat_map(|block| &block.operations) {
            match module.name(op) {
                ("vhlo", "func_v1") => {
                    if let Some(Attr::String(name)) = module.property(op, "sym_name") {
                        functions.insert(*name, op);
                    }
                }
                // Meshes of devices: the program runs on one.
                ("sdy", "mesh") => {}
                ("func" | "stablehlo", _) => {
                    let message =
                        "a program of StableHLO without a version; write it with `jax.export`, whose files have one";
                    return Err(unsupported("module", message));
                }
                (dialect, name) => {
                    return Err(unsupported("module", format_args!("the operation {dialect}.{name} beside functions")));
                }
            }
        }
        Ok(Importer {
            module,
            options,
            functions,
            imported: HashMap::new(),
            expansions: HashMap::new(),
            constants: Vec::new(),
            constant_numbers: HashMap::new(),
            frames: Frames::default(),
            depth: 0,
            deepest: 0,
            size: 0,
        })
    }

    fn function_of(&self, name: &[u8], operation: &str) -> Result<&'m Operation> {
        self.functions.get(name).copied().ok_or_else(|| {
            malformed(operation, format_args!("there is no function `{}`", String::from_utf8_lossy(name)))
        })
    }

    /// The region of this number of an operation as a closed program.
    fn body(&mut self, op: &'m Operation, region: usize, name: &str) -> Result<Body> {
        let Some(Region { blocks }) = op.regions.get(region) else {
            return Err(malformed(name, "a body is missing"));
        };
        let [block] = &blocks[..] else {
            return Err(unsupported(name, "a body of several blocks"));
        };
        self.reach(1, name)?;
        self.depth += 1;
        self.frames.push();
        for &argument in &block.arguments {
            let aval = types::aval(self.module, self.module.type_of(argument), name)?;
            let atom = self.frames.top().builder.input(aval);
            self.frames.define(argument, Known::Atom(atom));
        }
        let mut outs = None;
        for op in &block.operations {
            if outs.is_some() {
                return Err(malformed(name, "an operation follows the end of a body"));
            }
            self.grow(1, name)?;
            let (red, piece) = STACK;
            outs = stacker::maybe_grow(red, piece, || self.operation(op))?;
        }
        self.depth -= 1;
        let outs = outs.ok_or_else(|| malformed(name, "a body has no end"))?;
        Ok(self.frames.finish(outs))
    }

    /// Notes that something of this height begins here.
    fn reach(&mut self, height: usize, name: &str) -> Result<()> {
        self.deepest = self.deepest.max(self.depth + height);
        if self.deepest > DEPTH {
            return Err(unsupported(name, format_args!("calls and bodies that are nested more than {DEPTH} deep")));
        }
        Ok(())
    }

    /// Notes that the program gets so many more operations.
    fn grow(&mut self, size: u64, name: &str) -> Result<()> {
        self.size = self.size.saturating_add(size);
        if self.size > SIZE {
            return Err(unsupported(
                name,
                format_args!("a program of more than {SIZE} operations, with those of its calls"),
            ));
        }
        Ok(())
    }

    /// Emits an equation at the present location.
    fn emit(&mut self, op: impl Into<Op>, ins: &[Atom]) -> Result<Atom> {
        self.frames.top().builder.emit1(op.into(), ins)
    }

    fn emit_all(&mut self, op: impl Into<Op>, ins: &[Atom]) -> Result<Vec<Atom>> {
        Ok(self.frames.top().builder.emit(op.into(), ins)?.into_vec())
    }

    fn aval(&mut self, atom: Atom) -> Aval {
        self.frames.top().builder.aval(atom)
    }

    fn known(&mut self, value: ValueId, name: &str) -> Result<Known> {
        self.frames.known(value).ok_or_else(|| malformed(name, "an operand belongs to another function"))
    }

    /// A value as an atom.
    fn atom(&mut self, value: ValueId, name: &str) -> Result<Atom> {
        match self.known(value, name)? {
            Known::Atom(atom) => Ok(atom),
            Known::Splat(literal, shape) => self.frames.top().materialize(value, literal, shape),
        }
    }

    /// The operands of an operation, which takes `N` of them.
    fn operands<const N: usize>(&mut self, node: Node<'a, 'm>) -> Result<[Atom; N]> {
        let values: [ValueId; N] = node.op.operands[..]
            .try_into()
            .map_err(|_| node.malformed(format_args!("takes {N} operands and has {}", node.op.operands.len())))?;
        let mut atoms = [Atom::Lit(remat_ir::Literal::from_bool(false)); N];
        for (atom, value) in atoms.iter_mut().zip(values) {
            *atom = self.atom(value, node.name)?;
        }
        Ok(atoms)
    }

    fn all_operands(&mut self, node: Node<'a, 'm>) -> Result<Vec<Atom>> {
        node.op.operands.iter().map(|&value| self.atom(value, node.name)).collect()
    }

    /// Sets the results of an operation, whose types are those of the file.
    fn define(&mut self, node: Node<'a, 'm>, results: &[Atom]) -> Result<()> {
        let avals = node.result_avals()?;
        if avals.len() != results.len() {
            return Err(node.malformed(format_args!("gives {} results and has {}", results.len(), avals.len())));
        }
        for ((&value, &atom), wanted) in node.op.results.iter().zip(results).zip(avals) {
            let aval = self.aval(atom);
            if aval != wanted {
                return Err(node.malformed(format_args!("gives {aval} and has a result {wanted}")));
            }
            self.frames.define(value, Known::Atom(atom));
        }
        Ok(())
    }

    /// The atoms of what a body takes from around it.
    fn captured(&mut self, captures: &[Capture], name: &str) -> Result<Vec<Atom>> {
        captures
            .iter()
            .map(|&capture| {
                let aval = match capture {
                    Capture::Constant(number) => self.constants[number].aval().clone(),
                    Capture::Value(value) => types::aval(self.module, self.module.type_of(value), name)?,
                };
                self.frames
                    .captured(capture, &aval)
                    .ok_or_else(|| malformed(name, "a body uses a value of another function"))
            })
            .collect()
    }

    fn loc(&self, op: &Operation) -> Loc {
        if self.options.locations { locations::loc(self.module, op.location) } else { Loc::UNKNOWN }
    }
}
