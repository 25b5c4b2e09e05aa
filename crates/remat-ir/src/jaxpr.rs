//! Programs: variables, atoms, equations, jaxprs.
//!
//! A [`Jaxpr`] is in static single assignment form: every variable is an input or the output of one equation, and is used only after it. A
//! pass that owns a jaxpr may change it; a shared one (an `Arc`) never changes. Variables are indices, so every pass keeps its facts in a
//! [`VarMap`], a dense vector, which is deterministic and fast. There are no pointers between equations, use lists or hash maps.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{Array, Aval, DType, Error, ErrorKind, Literal, Loc, Op, Result, Role};

/// A variable: an index into the avals of its jaxpr.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Var(pub u32);

impl Var {
    /// The index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operand: a variable or a scalar constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atom {
    /// A variable of the same jaxpr.
    Var(Var),
    /// A scalar constant.
    Lit(Literal),
}

impl Atom {
    /// The variable, if this is one.
    pub fn var(self) -> Option<Var> {
        match self {
            Atom::Var(v) => Some(v),
            Atom::Lit(_) => None,
        }
    }

    /// The literal, if this is one.
    pub fn literal(self) -> Option<Literal> {
        match self {
            Atom::Lit(l) => Some(l),
            Atom::Var(_) => None,
        }
    }
}

impl From<Var> for Atom {
    fn from(v: Var) -> Atom {
        Atom::Var(v)
    }
}

impl From<Literal> for Atom {
    fn from(l: Literal) -> Atom {
        Atom::Lit(l)
    }
}

/// The variables that an equation defines: most define one.
pub type Vars = SmallVec<[Var; 1]>;
/// The operands of an equation.
pub type Atoms = SmallVec<[Atom; 3]>;

/// One equation: `outs = op ins`.
#[derive(Clone, Debug)]
pub struct Eqn {
    /// The variables that it defines.
    pub outs: Vars,
    /// The operation.
    pub op: Op,
    /// The operands.
    pub ins: Atoms,
    /// Where the user wrote it. Not a part of the program: equality ignores it.
    pub loc: Loc,
}

impl PartialEq for Eqn {
    fn eq(&self, other: &Eqn) -> bool {
        self.outs == other.outs && self.op == other.op && self.ins == other.ins
    }
}

impl Eq for Eqn {}

/// A program: inputs, equations in order, outputs. Bodies of higher-order operations are jaxprs too. They are closed: every outer value
/// that they use is an input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Jaxpr {
    /// The aval of each variable.
    pub avals: VarMap<Aval>,
    /// The inputs.
    pub ins: Vec<Var>,
    /// The equations, in an order in which they can run.
    pub eqns: Vec<Eqn>,
    /// The outputs: a variable may appear several times, and an input may be an output.
    pub outs: Vec<Atom>,
}

/// Shallow: hashes the interface and the size. Equal programs have equal hashes, and hashing an equation stays cheap however deep its
/// bodies are.
impl std::hash::Hash for Jaxpr {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ins.hash(state);
        self.outs.hash(state);
        self.avals.len().hash(state);
        self.eqns.len().hash(state);
    }
}

impl Jaxpr {
    /// The aval of a variable.
    pub fn aval(&self, var: Var) -> &Aval {
        &self.avals[var]
    }

    /// The aval of an atom.
    pub fn atom_aval(&self, atom: Atom) -> Aval {
        match atom {
            Atom::Var(v) => self.avals[v].clone(),
            Atom::Lit(l) => l.aval(),
        }
    }

    /// The avals of the inputs, in order.
    pub fn in_avals(&self) -> Vec<Aval> {
        self.ins.iter().map(|&v| self.avals[v].clone()).collect()
    }

    /// The avals of the outputs, in order.
    pub fn out_avals(&self) -> Vec<Aval> {
        self.outs.iter().map(|&a| self.atom_aval(a)).collect()
    }

    /// A map from every variable of this jaxpr to `value`.
    pub fn var_map<T: Clone>(&self, value: T) -> VarMap<T> {
        VarMap::filled(self.avals.len(), value)
    }
}

/// A jaxpr whose first inputs are bound to constants.
#[derive(Clone, Debug)]
pub struct ClosedJaxpr {
    /// The program; its first `consts.len()` inputs are the constants.
    pub jaxpr: Arc<Jaxpr>,
    /// The constants.
    pub consts: Vec<Array>,
}

/// A dense map whose keys are the variables of one jaxpr.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VarMap<T>(Vec<T>);

impl<T> Default for VarMap<T> {
    fn default() -> Self {
        VarMap(Vec::new())
    }
}

impl<T> VarMap<T> {
    /// A map of the first `len` variables to one value.
    pub fn filled(len: usize, value: T) -> VarMap<T>
    where
        T: Clone,
    {
        VarMap(vec![value; len])
    }

    /// Adds a variable.
    pub fn push(&mut self, value: T) -> Var {
        let var = Var(u32::try_from(self.0.len()).expect("a program has fewer than 2^32 variables"));
        self.0.push(value);
        var
    }

    /// The number of variables.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no variable.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a variable, if it is in the map.
    pub fn get(&self, var: Var) -> Option<&T> {
        self.0.get(var.index())
    }

    /// Variables and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (Var, &T)> {
        self.0.iter().enumerate().map(|(i, t)| (Var(i as u32), t))
    }
}

impl<T> std::ops::Index<Var> for VarMap<T> {
    type Output = T;
    fn index(&self, var: Var) -> &T {
        &self.0[var.index()]
    }
}

impl<T> std::ops::IndexMut<Var> for VarMap<T> {
    fn index_mut(&mut self, var: Var) -> &mut T {
        &mut self.0[var.index()]
    }
}

/// Builds a jaxpr equation by equation, inferring and checking avals.
///
/// ```
/// use remat_ir::{Aval, Builder, DType, Unary};
/// let mut b = Builder::new();
/// let x = b.input(Aval::new(DType::F32, [3]));
/// let y = b.emit1(Unary::Sin.into(), &[x])?;
/// let jaxpr = b.finish(vec![y]);
/// assert_eq!(jaxpr.eqns.len(), 1);
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    jaxpr: Jaxpr,
    /// The location that equations are given.
    pub loc: Loc,
    /// What equations are for that are added from here on, also copies of others ([`Loc::role`]), unless they are for a later one already.
    pub role: Role,
}

impl Builder {
    /// An empty program.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds an input.
    pub fn input(&mut self, aval: Aval) -> Atom {
        let var = self.jaxpr.avals.push(aval);
        self.jaxpr.ins.push(var);
        Atom::Var(var)
    }

    /// Adds inputs of these avals.
    pub fn inputs(&mut self, avals: impl IntoIterator<Item = Aval>) -> Vec<Atom> {
        avals.into_iter().map(|a| self.input(a)).collect()
    }

    /// The aval of an atom of this program.
    pub fn aval(&self, atom: Atom) -> Aval {
        self.jaxpr.atom_aval(atom)
    }

    /// The dtype of an atom.
    pub fn dtype(&self, atom: Atom) -> DType {
        match atom {
            Atom::Var(v) => self.jaxpr.avals[v].dtype,
            Atom::Lit(l) => l.dtype(),
        }
    }

    /// The shape of an atom.
    pub fn shape(&self, atom: Atom) -> crate::Shape {
        match atom {
            Atom::Var(v) => self.jaxpr.avals[v].shape.clone(),
            Atom::Lit(_) => crate::Shape::new(),
        }
    }

    /// Adds an equation and returns its outputs.
    ///
    /// # Errors
    /// If the operation does not take operands of these avals; the error has the current location.
    pub fn emit(&mut self, op: Op, ins: &[Atom]) -> Result<SmallVec<[Atom; 2]>> {
        let in_avals: SmallVec<[Aval; 4]> = ins.iter().map(|&a| self.aval(a)).collect();
        let out_avals = op.infer(&in_avals).map_err(|e| e.at(self.loc))?;
        Ok(self.push(op, ins, out_avals, self.loc).into_iter().map(Atom::Var).collect())
    }

    /// Adds an equation with exactly one output.
    ///
    /// # Errors
    /// As [`Builder::emit`], or if the operation does not have exactly one output.
    pub fn emit1(&mut self, op: Op, ins: &[Atom]) -> Result<Atom> {
        let outs = self.emit(op, ins)?;
        match outs[..] {
            [out] => Ok(out),
            _ => Err(Error::new(ErrorKind::Internal, "emit1", format!("expected one output, got {}", outs.len()))),
        }
    }

    /// Adds an equation whose output avals are known, such as a copy of an equation of another program. They are not checked.
    pub fn push(&mut self, op: Op, ins: &[Atom], out_avals: impl IntoIterator<Item = Aval>, loc: Loc) -> Vars {
        let outs: Vars = out_avals.into_iter().map(|a| self.jaxpr.avals.push(a)).collect();
        let loc = Loc { role: loc.role.max(self.role), ..loc };
        self.jaxpr.eqns.push(Eqn { outs: outs.clone(), op, ins: ins.iter().copied().collect(), loc });
        outs
    }

    /// Copies all equations of `jaxpr`, with `args` as its inputs, and returns its outputs.
    ///
    /// # Errors
    /// If the number of arguments or one of their avals differs from the inputs'.
    pub fn inline(&mut self, jaxpr: &Jaxpr, args: &[Atom]) -> Result<Vec<Atom>> {
        if args.len() != jaxpr.ins.len() {
            let message = format!("the program takes {} inputs and got {}", jaxpr.ins.len(), args.len());
            return Err(Error::new(ErrorKind::Internal, "inline", message));
        }
        let mut env: VarMap<Option<Atom>> = jaxpr.var_map(None);
        for (&var, &arg) in jaxpr.ins.iter().zip(args) {
            if self.aval(arg) != jaxpr.avals[var] {
                let message = format!("an argument is {} and the program takes {}", self.aval(arg), jaxpr.avals[var]);
                return Err(Error::new(ErrorKind::Internal, "inline", message));
            }
            env[var] = Some(arg);
        }
        let read = |env: &VarMap<Option<Atom>>, atom: Atom| match atom {
            Atom::Lit(_) => Ok(atom),
            Atom::Var(v) => env[v]
                .ok_or_else(|| Error::new(ErrorKind::Internal, "inline", "a variable is used before it is defined")),
        };
        for eqn in &jaxpr.eqns {
            let ins: Atoms = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<_>>()?;
            let avals = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone());
            let outs = self.push(eqn.op.clone(), &ins, avals, eqn.loc);
            for (&var, out) in eqn.outs.iter().zip(outs) {
                env[var] = Some(Atom::Var(out));
            }
        }
        jaxpr.outs.iter().map(|&a| read(&env, a)).collect()
    }

    /// The number of equations so far.
    pub fn len(&self) -> usize {
        self.jaxpr.eqns.len()
    }

    /// Whether there is no equation yet.
    pub fn is_empty(&self) -> bool {
        self.jaxpr.eqns.is_empty()
    }

    /// The program so far, without outputs.
    pub fn peek(&self) -> &Jaxpr {
        &self.jaxpr
    }

    /// Ends the program with these outputs.
    pub fn finish(mut self, outs: Vec<Atom>) -> Jaxpr {
        self.jaxpr.outs = outs;
        self.jaxpr
    }
}
