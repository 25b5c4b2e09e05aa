//! Reading.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use remat::ir::{Array, Aval, counted, did_you_mean};
use remat::{Error, ErrorKind, Result, Tensor, Tree, tree};

use crate::failure::{cannot, listed, of_tensor, wrong};
use crate::header::{self, Header};
use crate::{element, name};

/// A safetensors file whose header was read, and whose tensors are read when they are asked for.
///
/// ```
/// use remat::Tensor;
/// use remat_io::SafeTensors;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("pair.safetensors");
/// remat_io::save(&path, &(Tensor::new([1.0f32, 2.0]), Tensor::from(7)))?;
/// let file = SafeTensors::open(&path)?;
/// assert_eq!(file.aval("0")?.to_string(), "f32[2]");
/// assert_eq!(file.tensor("1")?.item::<i32>()?, 7);
/// let error = file.tensor("2").unwrap_err();
/// assert!(error.message().contains("has no tensor `2`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SafeTensors {
    path: PathBuf,
    file: Mutex<File>,
    header: Header,
}

/// The options of [`load_with`].
///
/// ```
/// use remat::{DType, Tensor};
/// use remat_io::LoadOptions;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("half.safetensors");
/// remat_io::save(&path, &vec![Tensor::new([0.5f32, 3.0]).to_dtype(DType::Bf16), Tensor::from(1)])?;
/// let like = vec![Tensor::shape_only([2], DType::F32)];
/// let options = LoadOptions { cast_floats: true, ignore_surplus: true };
/// assert_eq!(remat_io::load_with(&options, &path, &like)?[0].to_vec::<f32>()?, [0.5, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// A float of another dtype than the leaf of `like` is converted to it, rounded to nearest. Otherwise it is an error.
    pub cast_floats: bool,
    /// Tensors of the file that the tree does not have are left out. Otherwise they are an error.
    pub ignore_surplus: bool,
}

/// The tree of a file that [`save`](crate::save) wrote: the structure of `like` with the tensors of the file, found by their names.
///
/// Of the leaves of `like`, dtype and shape count, and the device: each tensor goes to the device that the leaf lives on. A leaf may be abstract
/// ([`Tensor::shape_only`]), as those of a model are whose `init` runs in [`eval_shape`](remat::eval_shape); then the tensors
/// are on the host, and are the only memory that is needed.
///
/// ```
/// use remat::{DType, Tensor, eval_shape, nn::Linear, random};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("layer.safetensors");
/// let layer = Linear::init(random::key(0), 3, 5, DType::F32);
/// remat_io::save(&path, &layer)?;
/// let like = eval_shape(|_: &()| Linear::init(random::key(0), 3, 5, DType::F32))(&())?;
/// assert!(like.weight.is_abstract());
/// assert_eq!(remat_io::load(&path, &like)?.weight.to_vec::<f32>()?, layer.weight.to_vec::<f32>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is damaged, cut off or of another format; if it lacks a tensor of the tree or has others, or one has another dtype or
/// shape: the error names the file and the tensor.
#[track_caller]
pub fn load<T: Tree>(path: impl AsRef<Path>, like: &T) -> Result<T> {
    load_with(&LoadOptions::default(), path, like)
}

/// As [`load`], with options.
///
/// # Errors
/// As [`load`].
#[track_caller]
pub fn load_with<T: Tree>(options: &LoadOptions, path: impl AsRef<Path>, like: &T) -> Result<T> {
    SafeTensors::open(path)?.tree(options, like)
}

/// The operation that errors name.
const LOAD: &str = "load";

impl SafeTensors {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, cut off or of another format.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<SafeTensors> {
        let loc = remat::layer::location();
        let path = path.as_ref();
        let open = || {
            let mut file = File::open(path).map_err(|error| cannot(LOAD, "read", path, &error))?;
            let header = header::read(LOAD, path, &mut file)?;
            Ok(SafeTensors { path: path.to_path_buf(), file: Mutex::new(file), header })
        };
        open().map_err(|error: Error| error.at(loc))
    }

    /// The path that it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The texts of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.header.tensors.keys().map(String::as_str)
    }

    /// Dtype and shape of a tensor.
    ///
    /// # Errors
    /// If there is no tensor of this name, with a did-you-mean, or it has a dtype that remat lacks.
    #[track_caller]
    pub fn aval(&self, name: &str) -> Result<Aval> {
        self.find(name).map(|(aval, _)| aval).map_err(|error| error.at(remat::layer::location()))
    }

    /// A tensor, read into the host's memory.
    ///
    /// # Errors
    /// As [`SafeTensors::aval`]; if the file cannot be read, or there is no memory for the tensor.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.read(name).map_err(|error| error.at(remat::layer::location()))
    }

    /// The tree of the structure of `like` with the tensors of this file: see [`load`].
    ///
    /// # Errors
    /// As [`load`].
    #[track_caller]
    pub fn tree<T: Tree>(&self, options: &LoadOptions, like: &T) -> Result<T> {
        let loc = remat::layer::location();
        let leaves = name::names(like)?;
        let read = || {
            self.expect_names(options, &leaves)?;
            for (name, leaf) in &leaves {
                self.expect_aval(options, name, leaf)?;
            }
            leaves.iter().map(|(name, leaf)| self.leaf(name, leaf)).collect::<Result<Vec<Tensor>>>()
        };
        let tensors = read().map_err(|error| error.at(loc))?;
        let mut tensors = tensors.into_iter();
        // There is a tensor for each leaf.
        Ok(tree::map(like, |_, leaf| tensors.next().unwrap_or_else(|| leaf.clone())))
    }

    /// The tensor for a leaf: of its dtype, on its device.
    fn leaf(&self, name: &str, leaf: &Tensor) -> Result<Tensor> {
        let (tensor, dtype) = (self.read(name)?, leaf.dtype()?);
        let tensor = if tensor.dtype()? == dtype { tensor } else { tensor.to_dtype(dtype) };
        let tensor = match leaf.device() {
            Ok(device) => tensor.to_device(&device),
            // It is abstract or traced, and lives nowhere.
            Err(_) => tensor,
        };
        match tensor.error() {
            None => Ok(tensor),
            Some(error) => Err(of_tensor(LOAD, &self.path, name, error)),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let (aval, start) = self.find(name)?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let data = element::read(aval.dtype, aval.size(), |bytes| {
            file.seek(SeekFrom::Start(self.header.data + start))?;
            file.read_exact(bytes)
        });
        let data = data.map_err(|error| cannot(LOAD, &format!("read tensor `{name}` of"), &self.path, &error))?;
        Ok(Tensor::from_array(Array::new(aval, data)?))
    }

    /// Dtype and shape of a tensor, and where it begins behind the header.
    fn find(&self, name: &str) -> Result<(Aval, u64)> {
        let Some(entry) = self.header.tensors.get(name) else {
            let known = || format!("; it has {}", listed(self.names()));
            let near = did_you_mean(name, self.names(), known);
            return Err(wrong(LOAD, &self.path, format!("has no tensor `{name}`{near}")));
        };
        match &entry.dtype {
            Ok(dtype) => Ok((Aval::new(*dtype, entry.shape.iter().copied()), entry.start)),
            Err(unknown) => {
                let message = format!("has tensor `{name}` of dtype {unknown}, which remat does not have");
                Err(Error::new(ErrorKind::DType, LOAD, wrong(LOAD, &self.path, message).message()))
            }
        }
    }

    /// That the file has the tensors of a tree and no others.
    fn expect_names(&self, options: &LoadOptions, leaves: &[(String, Tensor)]) -> Result<()> {
        let wanted: BTreeMap<&str, &Tensor> = leaves.iter().map(|(name, leaf)| (name.as_str(), leaf)).collect();
        let missing: Vec<&str> = leaves
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !self.header.tensors.contains_key(*name))
            .collect();
        let surplus: Vec<&str> = self.names().filter(|name| !wanted.contains_key(name)).collect();
        if let Some(first) = missing.first() {
            let others = match missing.len() - 1 {
                0 => String::new(),
                more => format!(" (nor {more} more of the tree)"),
            };
            let known = || match surplus.len() {
                0 => String::new(),
                _ => format!("; it has {}, which the tree does not", listed(surplus.iter().copied())),
            };
            let near = did_you_mean(first, surplus.iter().copied(), known);
            return Err(wrong(LOAD, &self.path, format!("has no tensor `{first}`{others}{near}")));
        }
        if surplus.is_empty() || options.ignore_surplus {
            return Ok(());
        }
        let (count, names) = (counted(surplus.len(), "tensor"), listed(surplus.iter().copied()));
        Err(wrong(LOAD, &self.path, format!("has {count} that the tree does not: {names}")))
    }

    /// That a tensor has dtype and shape of a leaf.
    fn expect_aval(&self, options: &LoadOptions, name: &str, leaf: &Tensor) -> Result<()> {
        let expected = leaf.aval().map_err(|error| of_tensor(LOAD, &self.path, name, &error))?;
        let (found, _) = self.find(name)?;
        let casts = options.cast_floats && found.dtype.is_float() && expected.dtype.is_float();
        let kind = match (found.shape == expected.shape, found.dtype == expected.dtype || casts) {
            (true, true) => return Ok(()),
            (false, _) => ErrorKind::Shape,
            (true, false) => ErrorKind::DType,
        };
        let path = self.path.display();
        let message = format!("tensor `{name}` of `{path}` is {found} and must be {expected}");
        Err(Error::new(kind, LOAD, message))
    }
}
