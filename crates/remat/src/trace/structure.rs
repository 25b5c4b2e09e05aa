//! The structure of a tree: everything except its tensors.

use std::hash::{Hash, Hasher};

use super::tree::{Path, Segment, Tree};

/// Everything in a tree except its leaves, in the order of a visit. Two trees of one type are interchangeable in a program if their
/// structures are equal.
///
/// ```
/// use remat::tree::Structure;
/// use remat::Tensor;
/// let one = Structure::of(&vec![Tensor::from(1.0f32)]);
/// let two = Structure::of(&vec![Tensor::from(1.0f32), Tensor::from(2.0f32)]);
/// assert_eq!(one.difference(&two).as_deref(), Some("1 element against 2 elements"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Structure(pub(super) Vec<Token>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Token {
    Enter(Segment),
    Exit,
    /// A tensor, with the number of its leading axes of layers.
    Leaf(usize),
    Variant(&'static str),
    Len(usize),
    Static(&'static str, Vec<u8>),
}

impl Structure {
    /// The structure of a tree.
    pub fn of<T: Tree>(tree: &T) -> Structure {
        super::structure(tree).1
    }

    /// For each leaf the number of its leading axes that come from stacked layers: see [`Walk::stacked`](crate::tree::Walk::stacked). Code
    /// that depends on the rank or the sizes of a parameter, such as [`Mask::Matrices`](crate::optim::Mask::Matrices), ignores these axes.
    ///
    /// ```
    /// use remat::{nn::{Linear, Stack}, random, tree::Structure};
    /// let layers = Stack::init(random::key(0), 3, |key| Linear::new(key, 4, 4)).stacked()?;
    /// assert_eq!(Structure::of(&(Linear::new(random::key(1), 4, 4), layers)).layer_axes(), [0, 0, 1, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn layer_axes(&self) -> Vec<usize> {
        let of_leaf = |token: &Token| if let Token::Leaf(layer_axes) = token { Some(*layer_axes) } else { None };
        self.0.iter().filter_map(of_leaf).collect()
    }

    /// The structures of the elements of a tuple or sequence, including those without leaves.
    pub(crate) fn elements(&self) -> Vec<Structure> {
        let (mut elements, mut depth) = (Vec::new(), 0);
        for token in &self.0 {
            match token {
                Token::Exit => depth -= 1,
                Token::Enter(Segment::Index(_)) if depth == 0 => elements.push(Structure::default()),
                _ => {}
            }
            if let Some(element) = elements.last_mut().filter(|_| depth > 0) {
                element.0.push(token.clone());
            }
            depth += i32::from(matches!(token, Token::Enter(_)));
        }
        elements
    }

    /// Describes the first difference of two structures, for an error message.
    pub fn difference(&self, other: &Structure) -> Option<String> {
        let at = (0..self.0.len().max(other.0.len())).find(|&i| self.0.get(i) != other.0.get(i))?;
        let mut path = Path::default();
        for token in &self.0[..at.min(self.0.len())] {
            match token {
                Token::Enter(segment) => path.0.push(segment.clone()),
                Token::Exit => drop(path.0.pop()),
                Token::Leaf(_) | Token::Variant(_) | Token::Len(_) | Token::Static(..) => {}
            }
        }
        let place = path.place();
        if let (Some(Token::Static(name, _)), Some(Token::Static(other, _))) = (self.0.get(at), other.0.get(at))
            && name == other
        {
            return Some(format!("the values of type {name}{place} differ"));
        }
        let describe = |token: Option<&Token>| match token {
            Some(Token::Enter(segment)) => format!("an element `{segment}`"),
            Some(Token::Leaf(0)) => "a tensor".to_string(),
            Some(Token::Leaf(_)) => "a tensor of stacked layers".to_string(),
            Some(Token::Variant(name)) => format!("the variant `{name}`"),
            Some(Token::Len(len)) => remat_ir::counted(*len, "element"),
            Some(Token::Static(name, _)) => format!("a value of the static type {name}"),
            Some(Token::Exit) | None => "nothing".to_string(),
        };
        Some(format!("{} against {}{place}", describe(self.0.get(at)), describe(other.0.get(at))))
    }
}

impl Token {
    /// A value that is neither a tensor nor a tree.
    pub(super) fn of_static<T: Hash + ?Sized>(value: &T) -> Token {
        let mut recorder = Recorder(Vec::new());
        value.hash(&mut recorder);
        Token::Static(std::any::type_name::<T>(), recorder.0)
    }
}

/// Records every byte that a value hashes, so that equal records mean equal values. Hashes alone could collide, and a collision in the
/// cache of `jit` would run the wrong program.
struct Recorder(Vec<u8>);

impl Hasher for Recorder {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}
