//! What a model consists of, without its weights.

use std::fmt;

use remat_ir::{Aval, Result, counted, readable_bytes};

use super::structure::{Structure, Token};
use super::tree::{Path, Segment, Tree, leaves};

/// The number of parameters of a model: the elements of its float tensors. A failed tensor has none.
///
/// ```
/// use remat::{nn, random, tree};
/// assert_eq!(tree::parameters(&nn::Linear::new(random::key(0), 3, 5)), 3 * 5 + 5);
/// ```
pub fn parameters<T: Tree>(model: &T) -> usize {
    summary(model).parameters()
}

/// The tensors of a model: paths, dtypes and shapes, numbers of elements and bytes, and no weights. Equal tensors of the elements of a list,
/// such as those of a list of layers, share a line. A failed tensor has its error instead.
///
/// ```
/// use remat::{nn, random, tree};
/// let layers: Vec<_> = random::key(0).split_vec(3).into_iter().map(|key| nn::Linear::new(key, 64, 64)).collect();
/// let model = (nn::Embedding::new(random::key(1), 100, 64), layers);
/// let text = "\
/// 0.table     f32[100,64]      6400  25.00 KiB
/// 1.*.weight  f32[64,64]   3 x 4096  48.00 KiB
/// 1.*.bias    f32[64]        3 x 64      768 B
/// 7 tensors, 18880 parameters, 73.75 KiB";
/// assert_eq!(tree::summary(&model).to_string(), text);
/// ```
pub fn summary<T: Tree>(model: &T) -> Summary {
    let mut rows: Vec<Row> = Vec::new();
    for ((path, leaf), pattern) in leaves(model).into_iter().zip(patterns(&Structure::of(model))) {
        let aval = leaf.aval().cloned();
        let is_same = |row: &&mut Row| match (&row.aval, &aval) {
            (Ok(one), Ok(other)) => row.pattern == pattern && one == other,
            _ => false,
        };
        match rows.iter_mut().find(is_same) {
            Some(row) => row.count += 1,
            None => rows.push(Row { path, pattern, aval, count: 1 }),
        }
    }
    Summary { rows }
}

/// The tensors of a model, for people: see [`summary`].
#[derive(Clone, Debug)]
pub struct Summary {
    rows: Vec<Row>,
}

/// Equal tensors of the elements of lists, or one tensor.
#[derive(Clone, Debug)]
struct Row {
    /// The path of the first.
    path: Path,
    /// The path with `*` for each place in a list.
    pattern: String,
    aval: Result<Aval>,
    count: usize,
}

impl Summary {
    /// The number of tensors.
    pub fn tensors(&self) -> usize {
        self.rows.iter().map(|row| row.count).sum()
    }

    /// The number of elements of float tensors.
    pub fn parameters(&self) -> usize {
        self.total(|aval| if aval.dtype.is_float() { aval.size() } else { 0 })
    }

    /// The number of bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.total(Aval::bytes)
    }

    fn total(&self, measure: impl Fn(&Aval) -> usize) -> usize {
        let of_row = |row: &Row| row.aval.as_ref().map_or(0, |aval| measure(aval).saturating_mul(row.count));
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(of_row(row)))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<[String; 4]> = self.rows.iter().map(Row::cells).collect();
        let width = |column: usize| cells.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let [paths, avals, elements, bytes] = std::array::from_fn(width);
        for (row, [path, aval, number, size]) in self.rows.iter().zip(&cells) {
            match &row.aval {
                Ok(_) => writeln!(f, "{path:<paths$}  {aval:<avals$}  {number:>elements$}  {size:>bytes$}")?,
                Err(error) => writeln!(f, "{path:<paths$}  failed: {}: {}", error.operation(), error.message())?,
            }
        }
        let (tensors, parameters) = (counted(self.tensors(), "tensor"), counted(self.parameters(), "parameter"));
        write!(f, "{tensors}, {parameters}, {}", readable_bytes(self.bytes()))
    }
}

impl Row {
    /// Path, type, number of elements, bytes.
    fn cells(&self) -> [String; 4] {
        let path = if self.count == 1 { self.path.to_string() } else { self.pattern.clone() };
        let Ok(aval) = &self.aval else { return [path, String::new(), String::new(), String::new()] };
        let size = aval.size();
        let number = if self.count == 1 { size.to_string() } else { format!("{} x {size}", self.count) };
        [path, aval.to_string(), number, readable_bytes(aval.bytes().saturating_mul(self.count))]
    }
}

/// The path of each leaf, with `*` for each place in a list.
fn patterns(structure: &Structure) -> Vec<String> {
    let (mut patterns, mut path) = (Vec::new(), Vec::new());
    // Whether each of the trees around the current one is a list, and the current one.
    let mut is_list = vec![false];
    for token in &structure.0 {
        match token {
            Token::Len(_) => is_list.last_mut().into_iter().for_each(|is_list| *is_list = true),
            Token::Enter(segment) => {
                let is_place = matches!(segment, Segment::Index(_)) && is_list.last() == Some(&true);
                path.push(if is_place { "*".to_string() } else { segment.to_string() });
                is_list.push(false);
            }
            Token::Exit => {
                path.pop();
                is_list.pop();
            }
            Token::Leaf(_) => patterns.push(path.join(".")),
            Token::Variant(_) | Token::Static(..) => {}
        }
    }
    patterns
}
