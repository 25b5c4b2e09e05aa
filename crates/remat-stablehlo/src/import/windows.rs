//! Reductions over sliding windows, among them cumulative ones.

use remat_ir::{
    ArgReduceWindow, Atom, BroadcastInDim, Cumulative, CumulativeKind, DType, IndexMode, Jaxpr, ReduceWindow, Result,
    Scatter, ScatterKind, Shape, Window, WindowKind,
};

use super::Importer;
use super::properties::Node;
use crate::patterns::{self, Fold};

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn window(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let results = match node.name {
            "reduce_window" => self.reduce_window(node)?,
            _ => vec![self.select_and_scatter(node)?],
        };
        self.define(node, &results)
    }

    fn reduce_window(&mut self, node: Node<'a, 'm>) -> Result<Vec<Atom>> {
        let operands = self.all_operands(node)?;
        if operands.is_empty() || !operands.len().is_multiple_of(2) {
            return Err(node.malformed("takes as many initial values as arrays"));
        }
        let (arrays, inits) = operands.split_at(operands.len() / 2);
        let body = self.closed_body(node, 0)?;
        let window = Window {
            dimensions: node.sizes("window_dimensions")?,
            strides: node.sizes("window_strides")?,
            padding: node.pairs("padding")?,
            base_dilation: node.sizes("base_dilations")?,
            window_dilation: node.sizes("window_dilations")?,
        };
        let one = match (arrays, inits) {
            (&[x], &[init]) => self.window_of_one(x, init, &window, &body)?,
            _ => None,
        };
        match one {
            Some(result) => Ok(vec![result]),
            None => self.windows_by_function(node, arrays, inits, &window, &body),
        }
    }

    /// Windows of one array, if there is an operation for them.
    fn window_of_one(&mut self, x: Atom, init: Atom, window: &Window, body: &Jaxpr) -> Result<Option<Atom>> {
        let aval = self.aval(x);
        // A window of one element: the initial value changes nothing.
        let is_single = window.dimensions.iter().all(|&size| size == 1) && is_plain(window);
        if is_single && window.dimensions.len() == aval.rank() && cumulative_kind(body, aval.dtype, init).is_some() {
            return Ok(Some(x));
        }
        if let Some((axis, reverse)) = whole_dimension(window, &aval.shape)
            && let Some(kind) = cumulative_kind(body, aval.dtype, init)
        {
            return self.emit(Cumulative { kind, axis, reverse }, &[x]).map(Some);
        }
        let (kind, fold) = match patterns::fold(body, aval.dtype) {
            Some(Fold::Sum) => (WindowKind::Sum, Fold::Sum),
            Some(Fold::Max) => (WindowKind::Max, Fold::Max),
            Some(Fold::Min) => (WindowKind::Min, Fold::Min),
            _ => return Ok(None),
        };
        let is_identity = matches!(init, Atom::Lit(literal) if fold.is_identity(literal));
        if !is_identity && fold == Fold::Sum {
            return Ok(None);
        }
        let result = self.emit(ReduceWindow { kind, window: window.clone() }, &[x])?;
        // An extremum may count the initial value any number of times.
        if is_identity { Ok(Some(result)) } else { self.emit(fold.binary(), &[result, init]).map(Some) }
    }

    /// Adds each element of the source to the place of the first extremum in its window: the derivative of max pooling. Windows with a NaN, for
    /// which StableHLO gives whatever its comparison gives, have the NaN as their extremum here.
    fn select_and_scatter(&mut self, node: Node<'a, 'm>) -> Result<Atom> {
        let [x, source, init] = self.operands(node)?;
        let aval = self.aval(x);
        let (select, scatter) = (self.closed_body(node, 0)?, self.closed_body(node, 1)?);
        let kind = patterns::selection(&select, aval.dtype);
        let (Some(kind), Some(Fold::Sum)) = (kind, patterns::fold(&scatter, aval.dtype)) else {
            return Err(node.unsupported("another selection than of an extremum, to whose place elements are added"));
        };
        let ones = Shape::from_elem(1, aval.rank());
        let window = Window {
            dimensions: node.sizes("window_dimensions")?,
            strides: node.sizes("window_strides")?,
            padding: node.pairs("padding")?,
            base_dilation: ones.clone(),
            window_dilation: ones,
        };
        let index_dtype = if aval.size() > i32::MAX as usize { DType::I64 } else { DType::I32 };
        let places = self.emit(ArgReduceWindow { kind, window, index_dtype }, &[x])?;
        let shape: Shape = self.aval(places).shape.iter().copied().chain([1]).collect();
        let places = self.reshape(places, shape)?;
        let flat = BroadcastInDim { shape: [aval.size()].into_iter().collect(), dims: Shape::new() };
        let start = self.emit(flat, &[init])?;
        let op = Scatter {
            kind: ScatterKind::Add,
            update_window_dims: Shape::new(),
            inserted_window_dims: [0].into_iter().collect(),
            scatter_dims_to_operand_dims: [0].into_iter().collect(),
            operand_batching_dims: Shape::new(),
            scatter_indices_batching_dims: Shape::new(),
            mode: IndexMode::FillOrDrop,
            unique_indices: false,
        };
        let sums = self.emit(op, &[start, places, source])?;
        self.reshape(sums, aval.shape)
    }
}

/// Whether windows lie at every element, without padding or dilation.
fn is_plain(window: &Window) -> bool {
    let is_one = |sizes: &Shape| sizes.iter().all(|&size| size == 1);
    is_one(&window.strides)
        && is_one(&window.base_dilation)
        && is_one(&window.window_dilation)
        && window.padding.iter().all(|&padding| padding == (0, 0))
}

/// The dimension along which a window ends, or begins, at each element and reaches all those before it, or behind it.
fn whole_dimension(window: &Window, shape: &[usize]) -> Option<(usize, bool)> {
    let is_one = |sizes: &Shape| sizes.iter().all(|&size| size == 1);
    if window.dimensions.len() != shape.len()
        || window.padding.len() != shape.len()
        || !is_one(&window.strides)
        || !is_one(&window.base_dilation)
        || !is_one(&window.window_dilation)
    {
        return None;
    }
    let axis = (0..shape.len()).find(|&d| window.dimensions[d] != 1)?;
    let is_other_plain = |d: usize| d == axis || (window.dimensions[d] == 1 && window.padding[d] == (0, 0));
    if window.dimensions[axis] != shape[axis] || !(0..shape.len()).all(is_other_plain) {
        return None;
    }
    let before = i64::try_from(shape[axis]).ok()? - 1;
    match window.padding[axis] {
        padding if padding == (before, 0) => Some((axis, false)),
        padding if padding == (0, before) => Some((axis, true)),
        _ => None,
    }
}

fn cumulative_kind(body: &Jaxpr, dtype: DType, init: Atom) -> Option<CumulativeKind> {
    let init = init.literal()?;
    let fold = patterns::fold(body, dtype);
    let kind = match fold {
        Some(Fold::Sum) => CumulativeKind::Sum,
        Some(Fold::Prod) => CumulativeKind::Prod,
        Some(Fold::Max) if dtype != DType::Bool => CumulativeKind::Max,
        Some(Fold::Min) if dtype != DType::Bool => CumulativeKind::Min,
        None if dtype.is_float() && patterns::is_log_add_exp(body, dtype) => {
            return Fold::Max.is_identity(init).then_some(CumulativeKind::LogSumExp);
        }
        _ => return None,
    };
    fold?.is_identity(init).then_some(kind)
}
