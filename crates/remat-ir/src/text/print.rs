//! The printer.
//!
//! The layout is that of JAX's own printer, Lindig's "Strictly Pretty": a group goes on one line if it fits, and otherwise breaks
//! everywhere. Here an attempt to print a group on one line writes to the output, and is rolled back when it exceeds the width. So printing
//! takes linear time and no document is built.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::ops::{Quoted, is_plain_word};
use crate::{Atom, Call, ClosedJaxpr, Eqn, Jaxpr, Loc, Op, Param, Scope, Var};

/// How a program prints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrintOptions {
    /// The maximal length of lines in characters, where they can be broken. JAX's is 80.
    pub width: usize,
    /// Whether each equation is followed by a comment with the user's line and scope: `# src/model.rs:12:9 (loss)`.
    pub locations: bool,
    /// How many of the first inputs print before the semicolon, as constants.
    pub num_consts: usize,
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions { width: 80, locations: false, num_consts: 0 }
    }
}

impl Jaxpr {
    /// The program's text with these options.
    ///
    /// ```
    /// use remat_ir::{Jaxpr, PrintOptions};
    /// let jaxpr = Jaxpr::parse("{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = sin b in (c,) }")?;
    /// let text = jaxpr.display(PrintOptions { width: 40, ..PrintOptions::default() }).to_string();
    /// assert_eq!(text, "\
    /// { lambda ; a:f32[]. let
    ///     b:f32[] = sin a
    ///     c:f32[] = sin b
    ///   in (c,) }");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn display(&self, options: PrintOptions) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| f.write_str(&Printer::new(options, None).program(self)))
    }
}

impl fmt::Display for Jaxpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(PrintOptions::default()).fmt(f)
    }
}

/// The name and the parameters on one line, without parameters that are programs.
///
/// ```
/// use remat_ir::{Cumulative, CumulativeKind, Op};
/// let op = Op::from(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: false });
/// assert_eq!(op.to_string(), "cumsum[axis=0 reverse=False]");
/// ```
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let is_program = |param: &Param| match param {
            Param::Jaxpr(_) => true,
            Param::Tuple(items) => items.iter().any(|item| matches!(item, Param::Jaxpr(_))),
            _ => false,
        };
        let params: Vec<_> = self.params().into_iter().filter(|(_, param)| !is_program(param)).collect();
        if params.is_empty() {
            return Ok(());
        }
        let mut printer = Printer::new(PrintOptions::default(), None);
        // Without a limit nothing overflows.
        let _: Fits = printer.params(&params, Mode::Flat, 0);
        f.write_str(&printer.out)
    }
}

/// Prints the constants before the semicolon, without their values.
impl fmt::Display for ClosedJaxpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = PrintOptions { num_consts: self.consts.len(), ..PrintOptions::default() };
        self.jaxpr.display(options).fmt(f)
    }
}

/// A part of a jaxpr.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The inputs.
    Inputs,
    /// The equation of this index.
    Equation(usize),
    /// The outputs.
    Outputs,
}

/// Remarks to print in a program.
pub(crate) trait Notes {
    /// The remarks about a part of a body, given the names that the program prints.
    fn notes(&self, body: *const Jaxpr, part: Part, name: &mut dyn FnMut(Var) -> String) -> Vec<String>;
}

/// The program's text with the remarks as comments below the lines that they are about.
pub(crate) fn print_with_notes(jaxpr: &Jaxpr, notes: &dyn Notes) -> String {
    Printer::new(PrintOptions::default(), Some(notes)).program(jaxpr)
}

/// A line went past the width.
struct Overflow;

type Fits = Result<(), Overflow>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// All on one line.
    Flat,
    /// One item a line.
    Break,
}

struct Printer<'a> {
    options: PrintOptions,
    notes: Option<&'a dyn Notes>,
    out: String,
    /// Where in `out` the current line begins.
    line: usize,
    /// The length of `out` past which the current attempt at one line has failed.
    limit: usize,
    /// The number of the next variable.
    next: u32,
    /// The programs that were bound ahead.
    shared: HashMap<*const Jaxpr, String>,
}

impl<'a> Printer<'a> {
    fn new(options: PrintOptions, notes: Option<&'a dyn Notes>) -> Printer<'a> {
        Printer { options, notes, out: String::new(), line: 0, limit: usize::MAX, next: 0, shared: HashMap::new() }
    }

    fn program(mut self, jaxpr: &Jaxpr) -> String {
        let mut taken = HashSet::new();
        for (body, hint) in shared_bodies(jaxpr) {
            let mut name = hint.to_string();
            let mut count = 0;
            while !taken.insert(name.clone()) {
                count += 1;
                name = format!("{hint}{count}");
            }
            self.whole(&format!("let {name} = "), body, 0);
            self.out.push_str(" in");
            self.newline(0);
            self.shared.insert(Arc::as_ptr(body), name);
        }
        self.whole("", jaxpr, self.options.num_consts);
        self.out
    }

    /// Prints text and a program at the beginning of a line.
    fn whole(&mut self, before: &str, jaxpr: &Jaxpr, num_consts: usize) {
        self.out.push_str(before);
        // Only an attempt at one line can overflow, and this is not one.
        let _: Fits = self.jaxpr(jaxpr, num_consts, Mode::Break, 0);
    }

    fn text(&mut self, text: &str) -> Fits {
        self.out.push_str(text);
        self.fits()
    }

    fn display(&mut self, value: impl fmt::Display) -> Fits {
        // Writing to a string does not fail.
        let _ = write!(self.out, "{value}");
        self.fits()
    }

    fn fits(&self) -> Fits {
        if self.out.len() > self.limit { Err(Overflow) } else { Ok(()) }
    }

    fn newline(&mut self, indent: usize) {
        self.out.push('\n');
        self.line = self.out.len();
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// A space, or a new line where the line is full.
    fn soft_break(&mut self, mode: Mode, indent: usize) -> Fits {
        if mode == Mode::Break && self.out.len() - self.line >= self.options.width {
            self.newline(indent);
            return Ok(());
        }
        self.text(" ")
    }

    /// Prints a group on one line if it fits there, and broken otherwise.
    fn group(&mut self, mode: Mode, mut print: impl FnMut(&mut Self, Mode) -> Fits) -> Fits {
        if mode == Mode::Flat {
            return print(self, Mode::Flat);
        }
        let (start, next) = (self.out.len(), self.next);
        self.limit = self.line.saturating_add(self.options.width);
        let fits = print(self, Mode::Flat);
        self.limit = usize::MAX;
        if fits.is_ok() {
            return fits;
        }
        self.out.truncate(start);
        self.next = next;
        print(self, Mode::Break)
    }

    fn jaxpr(&mut self, jaxpr: &Jaxpr, num_consts: usize, mode: Mode, indent: usize) -> Fits {
        if let Some(name) = self.shared.get(&(jaxpr as *const Jaxpr)) {
            self.out.push_str(name);
            return self.fits();
        }
        // A comment ends its line.
        let has_comments = self.options.locations || self.notes.is_some();
        self.group(mode, |p, mode| {
            // An equation takes at least eight characters. This keeps attempts that will fail from numbering variables.
            let room = p.limit.saturating_sub(p.out.len()) / 8;
            if mode == Mode::Flat && (has_comments || jaxpr.eqns.len() > room) {
                return Err(Overflow);
            }
            p.jaxpr_in(&mut Frame::new(jaxpr), num_consts, mode, indent)
        })
    }

    fn jaxpr_in(&mut self, frame: &mut Frame<'_>, num_consts: usize, mode: Mode, indent: usize) -> Fits {
        let jaxpr = frame.jaxpr;
        let (consts, ins) = jaxpr.ins.split_at(num_consts.min(jaxpr.ins.len()));
        self.text("{ lambda ")?;
        self.inputs(frame, consts, mode, indent + 4)?;
        self.text("; ")?;
        self.inputs(frame, ins, mode, indent + 4)?;
        self.text(". let")?;
        self.notes(frame, Part::Inputs, indent + 4);
        for (i, eqn) in jaxpr.eqns.iter().enumerate() {
            match mode {
                Mode::Flat => self.text(if i == 0 { " " } else { "; " })?,
                Mode::Break => self.newline(indent + 4),
            }
            self.eqn(frame, eqn, mode, indent + 4)?;
            self.location(eqn.loc);
            self.notes(frame, Part::Equation(i), indent + 4);
        }
        self.notes(frame, Part::Outputs, indent + 2);
        match mode {
            // Two spaces where there is no equation, as in JAX.
            Mode::Flat => self.text(if jaxpr.eqns.is_empty() { "  in (" } else { " in (" })?,
            Mode::Break => {
                self.newline(indent + 2);
                self.text("in (")?;
            }
        }
        for (i, &atom) in jaxpr.outs.iter().enumerate() {
            if i > 0 {
                self.text(",")?;
                self.soft_break(mode, indent + 4)?;
            }
            self.atom(frame, atom)?;
        }
        self.text(if jaxpr.outs.len() == 1 { ",) }" } else { ") }" })
    }

    fn inputs(&mut self, frame: &mut Frame<'_>, vars: &[Var], mode: Mode, indent: usize) -> Fits {
        for (i, &var) in vars.iter().enumerate() {
            if i > 0 {
                self.soft_break(mode, indent)?;
            }
            self.var(frame, var)?;
            self.aval(frame, var)?;
        }
        Ok(())
    }

    fn eqn(&mut self, frame: &mut Frame<'_>, eqn: &Eqn, mode: Mode, indent: usize) -> Fits {
        for (i, &var) in eqn.outs.iter().enumerate() {
            if i > 0 {
                self.soft_break(mode, indent + 2)?;
            }
            // A remark may be about an output that nothing uses.
            if frame.is_used(var) || self.notes.is_some() {
                self.var(frame, var)?;
            } else {
                self.text("_")?;
            }
            self.aval(frame, var)?;
        }
        // The equals sign stands also where there is no output, or the equation would read as operands of the last.
        self.text(if eqn.outs.is_empty() { "= " } else { " = " })?;
        self.text(eqn.op.name())?;
        let params = eqn.op.params();
        if !params.is_empty() {
            self.group(mode, |p, mode| p.params(&params, mode, indent))?;
        }
        for (i, &atom) in eqn.ins.iter().enumerate() {
            if i == 0 {
                self.text(" ")?;
            } else {
                self.soft_break(mode, indent + 2)?;
            }
            self.atom(frame, atom)?;
        }
        Ok(())
    }

    fn params(&mut self, params: &[(&'static str, Param)], mode: Mode, indent: usize) -> Fits {
        self.text("[")?;
        for (i, (name, param)) in params.iter().enumerate() {
            match mode {
                Mode::Flat => self.text(if i == 0 { "" } else { " " })?,
                Mode::Break => self.newline(indent + 2),
            }
            self.text(name)?;
            self.text("=")?;
            self.param(param, mode, indent + 2)?;
        }
        if mode == Mode::Break {
            self.newline(indent);
        }
        self.text("]")
    }

    fn param(&mut self, param: &Param, mode: Mode, indent: usize) -> Fits {
        match param {
            Param::None => self.text("None"),
            Param::Bool(true) => self.text("True"),
            Param::Bool(false) => self.text("False"),
            Param::Int(value) => self.display(value),
            Param::Word(word) => self.display(Quoted(word)),
            Param::DType(dtype) => self.text(dtype.long_name()),
            Param::Literal(literal) => self.display(literal),
            Param::Jaxpr(jaxpr) => self.jaxpr(jaxpr, 0, mode, indent),
            Param::Policy(policy) => self.display(policy),
            Param::Tuple(items) if !items.is_empty() && items.iter().all(|i| matches!(i, Param::Jaxpr(_))) => {
                self.group(mode, |p, mode| p.jaxprs(items, mode, indent))
            }
            Param::Tuple(items) => {
                self.text("(")?;
                self.items(items, mode, indent)?;
                self.text(if items.len() == 1 { ",)" } else { ")" })
            }
            Param::List(items) => {
                self.text("[")?;
                self.items(items, mode, indent)?;
                self.text("]")
            }
        }
    }

    fn items(&mut self, items: &[Param], mode: Mode, indent: usize) -> Fits {
        for (i, item) in items.iter().enumerate() {
            self.text(if i == 0 { "" } else { ", " })?;
            self.param(item, mode, indent)?;
        }
        Ok(())
    }

    fn jaxprs(&mut self, items: &[Param], mode: Mode, indent: usize) -> Fits {
        self.text("(")?;
        for (i, item) in items.iter().enumerate() {
            match mode {
                Mode::Flat => self.text(if i == 0 { "" } else { " " })?,
                Mode::Break => self.newline(indent + 2),
            }
            self.param(item, mode, indent + 2)?;
        }
        if mode == Mode::Break {
            self.newline(indent);
        }
        self.text(")")
    }

    fn atom(&mut self, frame: &mut Frame<'_>, atom: Atom) -> Fits {
        match atom {
            Atom::Var(var) => self.var(frame, var),
            Atom::Lit(literal) => self.display(literal),
        }
    }

    /// A variable's name: given when it is first printed, which is where it is defined unless the program is malformed.
    fn var(&mut self, frame: &mut Frame<'_>, var: Var) -> Fits {
        let name = frame.name(var, &mut self.next);
        self.text(&name)
    }

    fn aval(&mut self, frame: &Frame<'_>, var: Var) -> Fits {
        match frame.jaxpr.avals.get(var) {
            Some(aval) => self.display(format_args!(":{aval}")),
            None => self.text(":?"),
        }
    }

    fn location(&mut self, loc: Loc) {
        if self.options.locations && (loc.site.is_some() || loc.scope != Scope::ROOT) {
            self.comment(" # ", &loc.to_string());
        }
    }

    fn notes(&mut self, frame: &mut Frame<'_>, part: Part, indent: usize) {
        let Some(notes) = self.notes else { return };
        let next = &mut self.next;
        for line in notes.notes(frame.jaxpr, part, &mut |var| frame.name(var, next)) {
            self.newline(indent);
            self.comment("# ^ ", &line);
        }
    }

    /// A comment, or a space if the text ends the line anyway.
    fn comment(&mut self, mark: &str, text: &str) {
        self.out.push_str(mark);
        self.out.extend(text.chars().map(|c| if c == '\n' || c == '\r' { ' ' } else { c }));
    }
}

/// The variables of a program while it is printed.
struct Frame<'j> {
    jaxpr: &'j Jaxpr,
    /// The number from which a variable's name is made.
    numbers: Vec<Option<u32>>,
    used: Vec<bool>,
}

impl<'j> Frame<'j> {
    fn new(jaxpr: &'j Jaxpr) -> Frame<'j> {
        let mut used = vec![false; jaxpr.avals.len()];
        for var in jaxpr.eqns.iter().flat_map(|e| &e.ins).chain(&jaxpr.outs).filter_map(|a| a.var()) {
            if let Some(used) = used.get_mut(var.index()) {
                *used = true;
            }
        }
        Frame { jaxpr, numbers: vec![None; jaxpr.avals.len()], used }
    }

    /// Whether the variable needs a name.
    fn is_used(&self, var: Var) -> bool {
        self.used.get(var.index()) != Some(&false)
    }

    fn name(&mut self, var: Var, next: &mut u32) -> String {
        let Some(number) = self.numbers.get_mut(var.index()) else { return format!("?{}", var.0) };
        if let Some(number) = number {
            return letters(*number);
        }
        loop {
            let name = letters(*next);
            *number = Some(*next);
            *next += 1;
            if !RESERVED.contains(&name.as_str()) {
                return name;
            }
        }
    }
}

/// Words that are never a variable's name, so that neither a reader nor the parser mistakes them.
const RESERVED: [&str; 5] = ["in", "inf", "lambda", "let", "nan"];

/// A number in base 26 with the digits a to z.
fn letters(mut number: u32) -> String {
    let mut digits = vec![b'a' + (number % 26) as u8];
    while number >= 26 {
        number /= 26;
        digits.push(b'a' + (number % 26) as u8);
    }
    digits.iter().rev().map(|&d| char::from(d)).collect()
}

/// The bodies that are used more than once, each after those that it uses, with a name for each.
fn shared_bodies(jaxpr: &Jaxpr) -> Vec<(&Arc<Jaxpr>, &str)> {
    let mut uses: HashMap<*const Jaxpr, usize> = HashMap::new();
    let mut order = Vec::new();
    // Each entry is a body with those that it uses and that are still to be visited, last first.
    let mut stack = vec![(None, bodies(jaxpr))];
    while let Some((this, todo)) = stack.last_mut() {
        let Some(body) = todo.pop() else {
            order.extend(this.take());
            stack.pop();
            continue;
        };
        let count = uses.entry(Arc::as_ptr(body.0)).or_default();
        *count += 1;
        if *count == 1 {
            stack.push((Some(body), bodies(body.0)));
        }
    }
    order.retain(|(body, _)| uses.get(&Arc::as_ptr(body)).is_some_and(|&n| n > 1));
    order
}

/// The bodies of a program's equations with the names that they print under where they are shared, last first.
fn bodies(jaxpr: &Jaxpr) -> Vec<(&Arc<Jaxpr>, &str)> {
    let mut all = Vec::new();
    for eqn in &jaxpr.eqns {
        let name = match &eqn.op {
            Op::Call(Call::Jit(op)) => op.name.trim_matches(['<', '>']),
            _ => "jaxpr",
        };
        let name = if is_plain_word(name) && !RESERVED.contains(&name) { name } else { "jaxpr" };
        all.extend(eqn.op.bodies().into_iter().map(|b| (b, name)));
    }
    all.reverse();
    all
}
