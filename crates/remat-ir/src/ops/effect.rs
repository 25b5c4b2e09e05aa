//! Operations that act outside of the program.

use std::sync::Arc;

use super::{Operation, Param, ParamMap, Params};
use crate::display::Elements;
use crate::print::{Placeholder, Template, write_line};
use crate::{Aval, Call, Class, Error, ErrorKind, Jaxpr, Literal, Op, Prim, Result, Shape};

/// Prints the operands, one line for each example of the batches around it. It has no results, and is not dropped for that reason: what it
/// reads is computed, in the order of the program among other effects. Source: JAX's `debug.print`.
///
/// ```
/// use remat_ir::{Array, Jaxpr, captured, eval};
/// let text = "{ lambda ; a:f32[2] b:i32[]. let = debug_print[template=\"x {} after {} steps\"] a b in () }";
/// let args = vec![Array::from_vec(vec![1.0f32, 2.5], [2])?, Array::scalar(3)];
/// let (_, printed) = captured(|| eval(&text.parse::<Jaxpr>().unwrap(), args));
/// assert_eq!(printed, "x [1.  2.5] after 3 steps\n");
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DebugPrint {
    /// The text of a line, with a placeholder for each operand: `{}`, `{:?}` with dtype and shape, or `{:.3}` with three digits.
    pub template: Arc<str>,
    /// The sizes of the batches around it, the outermost first.
    pub batch: Shape,
    /// The batches, by number, that the first dimensions of each operand are, in order; an operand that is missing here is in none.
    pub axes: Vec<Shape>,
}

impl DebugPrint {
    /// Prints one line.
    pub fn new(template: impl Into<Arc<str>>) -> DebugPrint {
        DebugPrint { template: template.into(), batch: Shape::new(), axes: Vec::new() }
    }

    /// The batches that an operand has.
    fn axes(&self, operand: usize) -> &[usize] {
        self.axes.get(operand).map_or(&[], |axes| &axes[..])
    }

    /// Prints operands of these avals. `element` is the element of an operand at a row-major position.
    pub fn print(&self, ins: &[Aval], element: &dyn Fn(usize, usize) -> Option<Literal>) {
        let examples: usize = self.batch.iter().product();
        if examples == 0 {
            return;
        }
        // The shape rule has accepted the template.
        let Ok(template) = Template::parse(&self.template) else { return };
        for example in 0..examples {
            write_line(&template.fill(|operand, placeholder| {
                let Some(aval) = ins.get(operand) else { return String::new() };
                let axes = self.axes(operand);
                let shape: Shape = aval.shape.iter().skip(axes.len()).copied().collect();
                let start = self.position(example, axes) * shape.iter().product::<usize>();
                let at = |index| element(operand, start + index);
                text_of(&aval.with_shape(shape), &at, placeholder)
            }));
        }
    }

    /// The number of an example among those that an operand with these batches has.
    fn position(&self, mut example: usize, axes: &[usize]) -> usize {
        let mut index = vec![0; self.batch.len()];
        for (at, &size) in index.iter_mut().zip(&self.batch).rev() {
            *at = example % size;
            example /= size;
        }
        axes.iter().fold(0, |position, &axis| position * self.batch[axis] + index[axis])
    }
}

/// The text of one operand.
fn text_of(aval: &Aval, element: &dyn Fn(usize) -> Option<Literal>, placeholder: Placeholder) -> String {
    let text = |digits| Elements { shape: &aval.shape, dtype: aval.dtype, element }.text(digits);
    match placeholder {
        Placeholder::Elements => text(None),
        Placeholder::Digits(digits) => text(Some(digits)),
        Placeholder::WithAval => {
            let separator = if aval.rank() > 1 { '\n' } else { ' ' };
            format!("{aval}{separator}{}", text(None))
        }
    }
}

impl Operation for DebugPrint {
    fn name(&self) -> &'static str {
        "debug_print"
    }

    fn class(&self) -> Class {
        Class::Effect
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Argument, self.name(), message));
        let count = Template::parse(&self.template)
            .map_err(|fault| Error::new(ErrorKind::Argument, self.name(), fault))?
            .count();
        if count != ins.len() {
            let [wanted, got] = [(count, "placeholder"), (ins.len(), "value")].map(|(n, what)| crate::counted(n, what));
            return wrong(format!("the text {:?} has {wanted} and got {got}", self.template));
        }
        if self.batch.iter().try_fold(1usize, |count, &size| count.checked_mul(size.max(1))).is_none() {
            return wrong(format!("the batch {:?} has too many examples", self.batch));
        }
        for (operand, aval) in ins.iter().enumerate() {
            let axes = self.axes(operand);
            let sizes: Option<Shape> = axes.iter().map(|&axis| self.batch.get(axis).copied()).collect();
            if !axes.is_sorted_by(|a, b| a < b) || sizes.is_none_or(|sizes| !aval.shape.starts_with(&sizes)) {
                return wrong(format!("operand {operand}, {aval}, is not batched along {axes:?} of {:?}", self.batch));
            }
        }
        Ok(Vec::new())
    }

    // Not a row of `op!`: `axes` and `batch` print together or not at all.
    fn params(&self) -> Params {
        let template = [("template", Param::Word(self.template.clone()))];
        let axes = Param::Tuple(self.axes.iter().map(|axes| Param::ints(axes.iter().copied())).collect());
        let batch = [("axes", axes), ("batch", Param::ints(self.batch.iter().copied()))];
        let batch = batch.into_iter().filter(|_| !self.batch.is_empty());
        batch.chain(template).collect()
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "debug_print").then(|| {
            let mut op = DebugPrint::new(params.read::<Arc<str>>("template")?);
            if params.has("batch") {
                op.batch = params.read("batch")?;
                let Param::Tuple(axes) = params.take("axes")? else {
                    return Err(params.error("axes", "is not a tuple"));
                };
                let axes: Option<Vec<Shape>> = axes.iter().map(Param::as_sizes).collect();
                op.axes = axes.ok_or_else(|| params.error("axes", "is not a tuple of tuples of sizes"))?;
            }
            Ok(op)
        })
    }
}

impl Prim {
    /// Whether the operation acts outside of the program.
    fn has_effect(&self) -> bool {
        self.class() == Class::Effect
    }
}

impl Op {
    /// Whether the operation, or one in the bodies that it runs, acts outside of the program: it runs although nothing reads its results, once,
    /// and in the order of the program. Rules of derivatives do not run with their function.
    ///
    /// ```
    /// use remat_ir::{DebugPrint, Op, Unary};
    /// assert!(Op::from(DebugPrint::new("here")).has_effect());
    /// assert!(!Op::from(Unary::Sin).has_effect());
    /// ```
    pub fn has_effect(&self) -> bool {
        match self {
            Op::Prim(op) => op.has_effect(),
            Op::Call(Call::CustomJvp(op)) => op.call.has_effect(),
            Op::Call(Call::CustomVjp(op)) => op.call.has_effect(),
            Op::Call(Call::CustomLin(_)) => false,
            Op::Call(op) => op.bodies().into_iter().any(|body| body.has_effect()),
        }
    }

    /// The operation without the effects of its bodies, for a second run. A first-order operation stays as it is.
    pub fn without_effects(&self) -> Op {
        let mut op = self.clone();
        let silence = |body: &mut Arc<Jaxpr>| *body = Arc::new(body.without_effects());
        match &mut op {
            _ if !self.has_effect() => {}
            Op::Call(Call::CustomJvp(op)) => silence(&mut op.call),
            Op::Call(Call::CustomVjp(op)) => silence(&mut op.call),
            op => op.bodies_mut().into_iter().for_each(silence),
        }
        op
    }
}

impl Jaxpr {
    /// Whether an equation has an effect.
    pub fn has_effect(&self) -> bool {
        self.eqns.iter().any(|eqn| eqn.op.has_effect())
    }

    /// The program without effects.
    ///
    /// ```
    /// use remat_ir::Jaxpr;
    /// let text = "{ lambda ; a:f32[]. let b:f32[] = sin a; = debug_print[template=\"{}\"] b in (b,) }";
    /// let silent = text.parse::<Jaxpr>()?.without_effects();
    /// assert_eq!(silent.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn without_effects(&self) -> Jaxpr {
        let mut jaxpr = self.clone();
        jaxpr.eqns.retain(|eqn| !matches!(&eqn.op, Op::Prim(op) if op.has_effect()));
        for eqn in &mut jaxpr.eqns {
            eqn.op = eqn.op.without_effects();
        }
        jaxpr
    }
}
