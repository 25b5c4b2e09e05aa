//! The text of a module, statement by statement.
//!
//! A statement defines values; a value is a name and an aval. The methods are the operations of StableHLO that other modules compose. Each
//! writes one statement, or none if the operand already is the result.

use std::sync::Arc;

use remat_ir::{Aval, DType, Literal, Mesh, Result, Shape};

use crate::sharding::Placement;
use crate::value::{Name, Type, Value, comma_separated, element, names, types};
use crate::versions::Versions;
use crate::{Options, Platform};

/// A region of an operation: the avals of its arguments, and a function that writes its statements and returns its results.
pub(crate) struct Region<'a> {
    args: Vec<Aval>,
    /// The statement that ends it.
    end: &'static str,
    body: Box<dyn FnOnce(&mut Writer, &[Value]) -> Result<Vec<Value>> + 'a>,
}

impl<'a> Region<'a> {
    pub(crate) fn new(
        args: impl IntoIterator<Item = Aval>,
        body: impl FnOnce(&mut Writer, &[Value]) -> Result<Vec<Value>> + 'a,
    ) -> Region<'a> {
        Region { args: args.into_iter().collect(), end: "stablehlo.return", body: Box::new(body) }
    }

    /// A region of an operation of Shardy.
    pub(crate) fn of_shardy(self) -> Region<'a> {
        Region { end: "sdy.return", ..self }
    }
}

/// The devices for statements inside a `shard_map`.
#[derive(Clone)]
pub(crate) struct Manual {
    /// All devices.
    pub(crate) devices: Arc<Mesh>,
    /// The named axes. Along the others XLA may cut values.
    pub(crate) axes: Vec<Arc<str>>,
    /// The position of the device along named axes, if XLA has others: a device number would then not be the same for all of its values.
    pub(crate) positions: Vec<(Arc<str>, Value)>,
}

/// Writes statements.
pub(crate) struct Writer {
    pub(crate) options: Options,
    /// The meshes of the program, if it has any.
    pub(crate) placement: Option<Arc<Placement>>,
    /// The named axes inside a `shard_map`.
    pub(crate) manual: Option<Manual>,
    /// The values of the operations that were written.
    pub(crate) versions: Arc<Versions>,
    text: String,
    depth: usize,
    next: usize,
}

impl Writer {
    pub(crate) fn new(options: Options) -> Writer {
        Writer {
            options,
            placement: None,
            manual: None,
            versions: Arc::default(),
            text: String::new(),
            depth: 0,
            next: 0,
        }
    }

    /// Whether XLA orders the operations of the program so that communication between chips is hidden.
    pub(crate) fn hides_communication(&self) -> bool {
        self.options.platform == Platform::Tpu
            && self.placement.as_ref().is_some_and(|placement| placement.devices() > 1)
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    pub(crate) fn versions_mut(&mut self) -> &mut Versions {
        Arc::make_mut(&mut self.versions)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.extend(std::iter::repeat_n("  ", self.depth));
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Writes a block: its first line, its content, and its last line.
    pub(crate) fn block<T>(
        &mut self,
        begin: impl AsRef<str>,
        end: impl AsRef<str>,
        content: impl FnOnce(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        self.line(begin);
        self.depth += 1;
        let given = content(self)?;
        self.depth -= 1;
        self.line(end);
        Ok(given)
    }

    /// Writes the end of a function or region that returns these values.
    pub(crate) fn give(&mut self, word: &str, values: &[Value]) {
        let values: Vec<Value> = values.iter().map(|value| self.operand(value)).collect();
        match &values[..] {
            [] => self.line(word),
            values => {
                let types = types(values.iter().map(|value| &value.aval));
                self.line(format!("{word} {} : {types}", names(values)));
            }
        }
    }

    fn fresh(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// Writes a statement with one result and this text after the equals sign.
    pub(crate) fn define(&mut self, text: impl AsRef<str>, aval: Aval) -> Value {
        let id = self.fresh();
        self.line(format!("%{id} = {}", text.as_ref()));
        Value { name: Name::Result(id), aval }
    }

    /// Writes a statement with results of these avals and this text after the equals sign.
    pub(crate) fn define_all(&mut self, text: impl AsRef<str>, avals: Vec<Aval>) -> Vec<Value> {
        if let [aval] = &avals[..] {
            return vec![self.define(text, aval.clone())];
        }
        let id = self.fresh();
        self.line(format!("%{id}:{} = {}", avals.len(), text.as_ref()));
        avals.into_iter().enumerate().map(|(i, aval)| Value { name: Name::Part(id, i), aval }).collect()
    }

    /// Writes a statement with one result: an operation with its operands and attributes, and all types.
    pub(crate) fn apply(&mut self, text: impl AsRef<str>, ins: &[&Value], out: Aval) -> Value {
        let takes = types(ins.iter().map(|value| &value.aval));
        self.define(format!("{} : ({takes}) -> {}", text.as_ref(), Type(&out)), out)
    }

    /// Writes a statement in MLIR's generic form, which is used for all operations with regions. The name of an operation of a dialect
    /// other than StableHLO contains a point.
    pub(crate) fn generic(
        &mut self,
        operation: &str,
        ins: &[Value],
        properties: &str,
        regions: Vec<Region<'_>>,
        outs: &[Aval],
    ) -> Result<Vec<Value>> {
        let ins: Vec<Value> = ins.iter().map(|value| self.operand(value)).collect();
        let id = self.fresh();
        let results = match outs.len() {
            0 => String::new(),
            1 => format!("%{id} = "),
            n => format!("%{id}:{n} = "),
        };
        let properties = if properties.is_empty() { String::new() } else { format!(" <{{{properties}}}>") };
        let takes = types(ins.iter().map(|value| &value.aval));
        let gives = match outs {
            [out] => Type(out).to_string(),
            outs => format!("({})", types(outs)),
        };
        let dialect = if operation.contains('.') { "" } else { "stablehlo." };
        let begin = format!("{results}\"{dialect}{operation}\"({}){properties}", names(&ins));
        let end = format!(" : ({takes}) -> {gives}");
        let count = regions.len();
        if count == 0 {
            self.line(format!("{begin}{end}"));
        }
        for (i, region) in regions.into_iter().enumerate() {
            let begin = if i == 0 { format!("{begin} ({{") } else { "}, {".to_string() };
            self.line(begin);
            self.region(region)?;
            if i + 1 == count {
                self.line(format!("}}){end}"));
            }
        }
        let name = |i| if outs.len() == 1 { Name::Result(id) } else { Name::Part(id, i) };
        Ok(outs.iter().enumerate().map(|(i, aval)| Value { name: name(i), aval: aval.clone() }).collect())
    }

    fn region(&mut self, region: Region<'_>) -> Result<()> {
        let args: Vec<Value> =
            region.args.into_iter().map(|aval| Value { name: Name::Result(self.fresh()), aval }).collect();
        if !args.is_empty() {
            let list = comma_separated(args.iter().map(|arg| format!("{arg}: {}", Type(&arg.aval))));
            self.line(format!("^bb0({list}):"));
        }
        self.depth += 1;
        // Statements after the region cannot name what is inside.
        let outside = self.versions.clone();
        let outs = (region.body)(self, &args)?;
        self.versions = outside;
        self.give(region.end, &outs);
        self.depth -= 1;
        Ok(())
    }

    /// The value in a form that a statement can name.
    pub(crate) fn operand(&mut self, value: &Value) -> Value {
        match value.name {
            Name::Literal(literal) => self.constant(literal, &[]),
            _ => value.clone(),
        }
    }

    /// The scalar in every element of this shape.
    pub(crate) fn constant(&mut self, literal: Literal, shape: &[usize]) -> Value {
        let aval = literal.aval().with_shape(shape.iter().copied());
        let elements = if aval.size() == 0 { String::new() } else { element(literal) };
        self.define(format!("stablehlo.constant dense<{elements}> : {}", Type(&aval)), aval)
    }

    /// The number in every element of an array of this dtype and shape.
    pub(crate) fn splat(&mut self, like: &Value, value: f64) -> Value {
        self.constant(Literal::from_f64(like.dtype(), value), like.shape())
    }

    /// The integer, wrapped to the dtype, in every element of an array of this dtype and shape.
    pub(crate) fn splat_integer(&mut self, like: &Value, value: i128) -> Value {
        self.constant(Literal::from_i128(like.dtype(), value), like.shape())
    }

    /// An array without elements.
    pub(crate) fn empty(&mut self, aval: &Aval) -> Value {
        self.constant(Literal::from_f64(aval.dtype, 0.0), &aval.shape)
    }

    /// `stablehlo.OPERATION x`, of the operand's type.
    pub(crate) fn unary(&mut self, operation: &str, x: &Value) -> Value {
        self.define(format!("stablehlo.{operation} {x} : {}", Type(&x.aval)), x.aval.clone())
    }

    /// `stablehlo.OPERATION x, attributes`, of the operand's type.
    pub(crate) fn unary_with(&mut self, operation: &str, x: &Value, attributes: &str) -> Value {
        self.define(format!("stablehlo.{operation} {x}, {attributes} : {}", Type(&x.aval)), x.aval.clone())
    }

    /// `stablehlo.OPERATION a, b`, of the operands' type.
    pub(crate) fn binary(&mut self, operation: &str, a: &Value, b: &Value) -> Value {
        self.define(format!("stablehlo.{operation} {a}, {b} : {}", Type(&a.aval)), a.aval.clone())
    }

    /// The comparison `EQ`, `NE`, `LT`, `LE`, `GT` or `GE` of arrays of one type. A NaN is unequal to everything, and neither smaller nor
    /// larger.
    pub(crate) fn compare(&mut self, direction: &str, a: &Value, b: &Value) -> Value {
        let kind = match a.dtype() {
            dtype if dtype.is_float() => "FLOAT",
            dtype if dtype.is_signed() => "SIGNED",
            _ => "UNSIGNED",
        };
        let out = a.aval.with_dtype(DType::Bool);
        self.apply(format!("stablehlo.compare {direction}, {a}, {b}, {kind}"), &[a, b], out)
    }

    /// `holds ? yes : no`, element by element.
    pub(crate) fn select(&mut self, holds: &Value, yes: &Value, no: &Value) -> Value {
        let types = types([&holds.aval, &yes.aval]);
        self.define(format!("stablehlo.select {holds}, {yes}, {no} : {types}"), yes.aval.clone())
    }

    /// Whether each element is NaN; false for dtypes without NaN.
    pub(crate) fn is_nan(&mut self, x: &Value) -> Value {
        self.compare("NE", x, x)
    }

    /// `stablehlo.convert`.
    pub(crate) fn convert(&mut self, x: &Value, dtype: DType) -> Value {
        if x.dtype() == dtype {
            return x.clone();
        }
        self.apply(format!("stablehlo.convert {x}"), &[x], x.aval.with_dtype(dtype))
    }

    /// The result of a computation in f32 for f16 and bf16, rounded once. Other dtypes are computed as they are.
    pub(crate) fn widened(&mut self, x: &Value, f: impl FnOnce(&mut Writer, &Value) -> Value) -> Value {
        let wide = self.widen(x);
        let wide = f(self, &wide);
        self.convert(&wide, x.dtype())
    }

    /// f16 and bf16 in f32, other dtypes as they are.
    pub(crate) fn widen(&mut self, x: &Value) -> Value {
        match x.dtype() {
            DType::F16 | DType::Bf16 => self.convert(x, DType::F32),
            _ => x.clone(),
        }
    }

    /// `stablehlo.reshape`.
    pub(crate) fn reshape(&mut self, x: &Value, shape: &[usize]) -> Value {
        if x.shape() == shape {
            return x.clone();
        }
        self.apply(format!("stablehlo.reshape {x}"), &[x], x.aval.with_shape(shape.iter().copied()))
    }

    /// `stablehlo.broadcast_in_dim`: dimension `dims[i]` of the result is dimension `i` of the operand.
    pub(crate) fn broadcast(&mut self, x: &Value, dims: &[usize], shape: &[usize]) -> Value {
        if let Name::Literal(literal) = x.name {
            return self.constant(literal, shape);
        }
        if x.shape() == shape {
            return x.clone();
        }
        let out = x.aval.with_shape(shape.iter().copied());
        self.apply(format!("stablehlo.broadcast_in_dim {x}, dims = {dims:?}"), &[x], out)
    }

    /// A scalar broadcast to this shape; an array of this shape stays as it is.
    pub(crate) fn spread(&mut self, x: &Value, shape: &[usize]) -> Value {
        match x.rank() {
            0 => self.broadcast(x, &[], shape),
            _ => self.operand(x),
        }
    }

    /// `stablehlo.iota`.
    pub(crate) fn iota(&mut self, dtype: DType, axis: usize, shape: &[usize]) -> Value {
        let aval = Aval::new(dtype, shape.iter().copied());
        self.define(format!("stablehlo.iota dim = {axis} : {}", Type(&aval)), aval)
    }

    /// Elements `start..limit` of each dimension, `strides` apart.
    pub(crate) fn slice(&mut self, x: &Value, start: &[usize], limit: &[usize], strides: &[usize]) -> Value {
        let ranges = (0..x.rank()).map(|d| match strides[d] {
            1 => format!("{}:{}", start[d], limit[d]),
            stride => format!("{}:{}:{stride}", start[d], limit[d]),
        });
        let ranges = comma_separated(ranges);
        let shape: Shape = (0..x.rank()).map(|d| (limit[d] - start[d]).div_ceil(strides[d])).collect();
        self.apply(format!("stablehlo.slice {x} [{ranges}]"), &[x], x.aval.with_shape(shape))
    }

    /// Elements `range` of one dimension, all of the others.
    pub(crate) fn slice_along(&mut self, x: &Value, axis: usize, range: std::ops::Range<usize>) -> Value {
        let (mut start, mut limit) = (vec![0; x.rank()], x.shape().to_vec());
        (start[axis], limit[axis]) = (range.start, range.end);
        self.slice(x, &start, &limit, &vec![1; x.rank()])
    }

    /// `stablehlo.concatenate`.
    pub(crate) fn concatenate(&mut self, parts: &[Value], axis: usize, out: Aval) -> Value {
        let ins: Vec<&Value> = parts.iter().collect();
        self.apply(format!("stablehlo.concatenate {}, dim = {axis}", names(parts)), &ins, out)
    }

    /// `stablehlo.pad` by low, high and interior padding of each dimension.
    pub(crate) fn pad(&mut self, x: &Value, value: &Value, config: &[(i64, i64, usize)], out: Aval) -> Value {
        let value = self.operand(value);
        let low = comma_separated(config.iter().map(|c| c.0));
        let high = comma_separated(config.iter().map(|c| c.1));
        let interior = comma_separated(config.iter().map(|c| c.2));
        let text = format!("stablehlo.pad {x}, {value}, low = [{low}], high = [{high}], interior = [{interior}]");
        self.apply(text, &[x, &value], out)
    }

    /// Reduces dimensions by an operation of two scalars, from its identity.
    pub(crate) fn reduce(&mut self, operation: &str, x: &Value, identity: Literal, axes: &[usize]) -> Value {
        let out = x.aval.with_shape((0..x.rank()).filter(|d| !axes.contains(d)).map(|d| x.shape()[d]));
        let init = self.constant(identity, &[]);
        let text =
            format!("stablehlo.reduce({x} init: {init}) applies stablehlo.{operation} across dimensions = {axes:?}");
        self.apply(text, &[x, &init], out)
    }
}
