//! Trees in safetensors files: what comes back, what the crate `safetensors` makes of it, and every way in which a file can be wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use remat::ir::{Array, Data, Literal};
use remat::{DType, Device, ErrorKind, Tensor, Tree, bf16, f16, nn, random, tree};
use remat_io::{LoadOptions, SafeTensors, SaveOptions, load, load_with, names, save, save_with};
use remat_testkit::installed;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

/// A folder, and a path in it that no file has.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    (folder, path)
}

/// The names of the files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn bits(tensor: &Tensor) -> (String, Vec<u64>) {
    let array = tensor.array().unwrap();
    let elements = (0..array.data().len()).map(|i| array.data().get(i).unwrap().bits()).collect();
    (array.aval().to_string(), elements)
}

/// The bits of all leaves, with their avals.
fn all_bits<T: Tree>(tree: &T) -> Vec<(String, Vec<u64>)> {
    tree::leaves(tree).iter().map(|(_, leaf)| bits(leaf)).collect()
}

#[track_caller]
fn message<T>(result: remat::Result<T>, folder: &TempDir) -> String {
    let Err(error) = result else { panic!("no error") };
    assert!(error.loc().is_some(), "{error}");
    error.message().replace(folder.path().to_str().unwrap(), "DIR")
}

#[derive(Clone, Tree)]
enum Norm {
    Layer {
        scale: Tensor,
    },
    #[allow(dead_code)]
    None,
}

#[derive(Clone, Tree)]
struct Model {
    blocks: Vec<nn::Linear>,
    pair: (Tensor, Option<Tensor>),
    norm: Norm,
    heads: usize,
    table: BTreeMap<String, Tensor>,
    r#type: Box<Tensor>,
}

fn model() -> Model {
    let blocks = random::key(0).split_vec(2).into_iter();
    Model {
        blocks: blocks.map(|key| nn::Linear::init(key, 3, 2, DType::F32)).collect(),
        pair: (Tensor::from(1i64), None),
        norm: Norm::Layer { scale: Tensor::zeros([0, 3], DType::F16) },
        heads: 3,
        table: [("a.b \"\u{e9}".to_string(), Tensor::from(true))].into(),
        r#type: Box::new(Tensor::new([1u8, 2])),
    }
}

#[test]
fn names_are_paths() {
    let expected = [
        "blocks.0.weight",
        "blocks.0.bias",
        "blocks.1.weight",
        "blocks.1.bias",
        "pair.0",
        "norm.scale",
        "table.a.b \"\u{e9}",
        "type",
    ];
    let found: Vec<String> = names(&model()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, expected);
    let (_folder, path) = place();
    save(&path, &model()).unwrap();
    let file = SafeTensors::open(&path).unwrap();
    let mut sorted = expected.to_vec();
    sorted.sort_unstable();
    assert_eq!(file.names().collect::<Vec<_>>(), sorted);
    assert_eq!(file.path(), path);
    assert_eq!(all_bits(&load(&path, &model()).unwrap()), all_bits(&model()));
    // A tree of one tensor, and one of none.
    save(&path, &Tensor::from(2.5f64)).unwrap();
    assert_eq!(SafeTensors::open(&path).unwrap().names().collect::<Vec<_>>(), ["tensor"]);
    assert_eq!(load(&path, &Tensor::shape_only((), DType::F64)).unwrap().item::<f64>().unwrap(), 2.5);
    save(&path, &()).unwrap();
    load(&path, &()).unwrap();
    assert_eq!(SafeTensors::open(&path).unwrap().names().len(), 0);
}

#[test]
fn two_tensors_of_one_name() {
    let (folder, path) = place();
    let x = Tensor::from(1.0f32);
    let inner: BTreeMap<String, Tensor> = [("b".to_string(), x.clone())].into();
    let tree = (BTreeMap::from([("a".to_string(), inner)]), BTreeMap::from([("a.b".to_string(), x.clone())]));
    save(&path, &tree).unwrap();
    #[derive(Tree)]
    struct Both {
        a: BTreeMap<String, Tensor>,
        all: BTreeMap<String, Tensor>,
    }
    let maps = BTreeMap::from([("1.w".to_string(), x.clone())]);
    let both = (0, vec![maps.clone()], Both { a: maps.clone(), all: maps });
    save(&path, &both).unwrap();
    let twice: BTreeMap<String, BTreeMap<String, Tensor>> = [
        ("a".to_string(), [("b.c".to_string(), x.clone())].into()),
        ("a.b".to_string(), [("c".to_string(), x.clone())].into()),
    ]
    .into();
    let expected = "two tensors of the tree have the name `a.b.c`; give one of them another key";
    assert_eq!(message(save(&path, &twice), &folder), expected);
    assert_eq!(message(load(&path, &twice), &folder), expected);
    let reserved: BTreeMap<String, Tensor> = [("__metadata__".to_string(), x)].into();
    let expected = "a tensor cannot have the name `__metadata__`, which safetensors keep for themselves";
    assert_eq!(message(save(&path, &reserved), &folder), expected);
}

/// Arrays of a dtype: none, one, several; a scalar; more dimensions than anybody has.
fn samples(dtype: DType) -> Vec<Tensor> {
    let shapes: [&[usize]; 6] = [&[], &[0], &[3], &[2, 0, 5], &[2, 3], &[1; 20]];
    let fill = |shape: &&[usize]| Tensor::from_array(Array::full(Literal::from_f64(dtype, 1.0), shape.iter().copied()));
    shapes.iter().map(fill).collect()
}

#[test]
fn every_dtype_and_shape_comes_back_and_is_what_the_crate_writes() {
    let mut tree: Vec<Vec<Tensor>> = DType::ALL.into_iter().map(samples).collect();
    let special = [f32::NAN, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 2.0, f32::from_bits(0xffc0_1234)];
    tree.push(vec![
        Tensor::new(special),
        Tensor::new([f64::from_bits(0x7ff8_dead_beef_0001), -f64::INFINITY]),
        Tensor::new([f16::NAN, f16::NEG_ZERO]),
        Tensor::new([bf16::NEG_INFINITY, bf16::MIN_POSITIVE_SUBNORMAL]),
        Tensor::new([u64::MAX, 1 << 63]),
        Tensor::new([i64::MIN, -1]),
        Tensor::new([true, false, true]),
    ]);
    let (_folder, path) = place();
    save(&path, &tree).unwrap();
    let like = tree::map(&tree, |leaf| Tensor::shape_only(leaf.shape().unwrap(), leaf.dtype().unwrap()));
    assert_eq!(all_bits(&load(&path, &like).unwrap()), all_bits(&tree));

    // What the crate reads, and the bytes that it writes of that, are these.
    let bytes = fs::read(&path).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.len(), names(&tree).unwrap().len());
    for (name, tensor) in names(&tree).unwrap() {
        let view = read.tensor(&name).unwrap();
        assert_eq!(view.shape(), tensor.shape().unwrap(), "{name}");
        assert_eq!(view.data().len(), tensor.size().unwrap() * tensor.dtype().unwrap().size(), "{name}");
    }
    let views: Vec<(String, TensorView)> = read.tensors();
    assert!(safetensors::serialize(views, None).unwrap() == bytes);
}

#[test]
fn metadata_is_kept_in_order() {
    let (_folder, path) = place();
    let metadata: BTreeMap<String, String> =
        (0..20).map(|i| (format!("key {i}"), format!("\"value\" \u{1f600} {i}"))).collect();
    save_with(&SaveOptions { metadata: metadata.clone() }, &path, &Tensor::from(1)).unwrap();
    let first = fs::read(&path).unwrap();
    assert_eq!(SafeTensors::open(&path).unwrap().metadata(), &metadata);
    assert_eq!(safetensors::SafeTensors::read_metadata(&first).unwrap().1.metadata().as_ref().unwrap().len(), 20);
    save_with(&SaveOptions { metadata }, &path, &Tensor::from(1)).unwrap();
    assert!(fs::read(&path).unwrap() == first);
}

/// A file with this header, and this number of bytes behind it.
fn write_raw(path: &Path, header: &str, bytes: usize) {
    let mut content = (header.len() as u64).to_le_bytes().to_vec();
    content.extend(header.as_bytes());
    content.resize(content.len() + bytes, 0);
    fs::write(path, content).unwrap();
}

#[test]
fn damaged_and_foreign_files() {
    let (folder, path) = place();
    let open = |header: &str, bytes: usize| {
        write_raw(&path, header, bytes);
        message(SafeTensors::open(&path), &folder)
    };
    let file = "`DIR/x.safetensors`";
    let damaged = |what: &str| format!("{file} has a damaged header: {what}");
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    write_raw(&path, &one("F32", "[2]", "[0,8]"), 8);
    assert_eq!(SafeTensors::open(&path).unwrap().tensor("w").unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);

    assert_eq!(
        open(&one("F32", "[2]", "[0,8]"), 7),
        format!("{file} is cut off: tensor `w` ends 1 byte beyond the end of the file")
    );
    assert_eq!(
        open(&one("F32", "[2]", "[0,8]"), 11),
        format!("{file} is damaged: it has 3 bytes after its last tensor")
    );
    assert_eq!(open(&one("F32", "[3]", "[0,8]"), 8), damaged("it gives tensor `w`, f32[3], 8 bytes"));
    assert_eq!(
        open(&one("F32", "[2]", "[4,12]"), 12),
        damaged("it puts tensor `w` at bytes 4 to 12, but byte 0 is next")
    );
    assert_eq!(open(&one("F32", "[2]", "[8,0]"), 8), damaged("it puts tensor `w` at bytes 8 to 0, but byte 0 is next"));
    let huge = one("F32", &format!("[{0},{0},{0}]", u64::MAX), "[0,8]");
    assert!(open(&huge, 8).contains("], 8 bytes"));
    assert!(open(&one("F32", "[-1]", "[0,8]"), 8).starts_with(&damaged("`w`: invalid value")));
    assert!(open(r#"{"w":{"dtype":"F32","shape":[1]}}"#, 4).starts_with(&damaged("`w`: missing field `data_offsets`")));
    assert!(open(r#"{"w":7}"#, 4).starts_with(&damaged("`w`: invalid type: integer `7`")));
    assert!(open("{", 0).starts_with(&damaged("EOF while parsing")));
    assert!(open("{}}", 0).starts_with(&damaged("trailing characters")));
    assert!(open(r#"{"__metadata__":{"a":1}}"#, 0).starts_with(&damaged("`__metadata__`: invalid type")));
    let w = r#""w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    assert!(open(&format!("{{{w},{w}}}"), 1).starts_with(&damaged("it has two tensors of the name `w`")));
    let v = r#""v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}"#;
    assert_eq!(open(&format!("{{{w},{v}}}"), 2), damaged("it puts tensor `v` at bytes 0 to 2, but byte 1 is next"));
    assert_eq!(open("[]", 0), format!("{file} is not a safetensors file: it does not begin with a header"));

    // A dtype that remat lacks is an error where that tensor is read.
    write_raw(&path, &one("F8_E4M3", "[2]", "[0,2]"), 2);
    let expected = format!("{file} has tensor `w` of dtype F8_E4M3, which remat does not have");
    let opened = SafeTensors::open(&path).unwrap();
    assert_eq!(message(opened.aval("w"), &folder), expected);
    let operation = |error: remat::Error| error.operation().to_string();
    assert_eq!(operation(opened.aval("w").unwrap_err()), "SafeTensors::aval");
    assert_eq!(operation(opened.tensor("w").unwrap_err()), "SafeTensors::tensor");
    assert_eq!(operation(SafeTensors::open(path.with_extension("no")).map(drop).unwrap_err()), "SafeTensors::open");
    let tree: BTreeMap<String, Tensor> = [("w".to_string(), Tensor::zeros([2], DType::U8))].into();
    assert_eq!(message(load(&path, &tree), &folder), expected);
    assert_eq!(operation(load(&path, &tree).map(drop).unwrap_err()), "load");
    assert_eq!(operation(opened.tree(&tree).map(drop).unwrap_err()), "SafeTensors::tree");

    write_raw(&path, &one("BOOL", "[2]", "[0,2]"), 2);
    let mut content = fs::read(&path).unwrap();
    *content.last_mut().unwrap() = 2;
    fs::write(&path, content).unwrap();
    let expected = format!("cannot read tensor `w` of {file}: element 1 is the byte 2 and not a bool");
    assert_eq!(message(SafeTensors::open(&path).unwrap().tensor("w"), &folder), expected);

    let foreign: [(&[u8], &str); 6] = [
        (b"", "it has 0 bytes"),
        (b"\x02\0\0", "it has 3 bytes"),
        (
            b"PK\x03\x04 and the rest of an archive",
            "it is a zip archive, as PyTorch's `torch.save` and NumPy's `savez` write",
        ),
        (b"GGUF\x03\0\0\0\0\0\0\0", "it is a GGUF file"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "it is a pointer of Git LFS: the file itself was not downloaded",
        ),
        (b"hello, this is a text", "it does not begin with a header"),
    ];
    for (content, expected) in foreign {
        fs::write(&path, content).unwrap();
        assert_eq!(message(SafeTensors::open(&path), &folder), format!("{file} is not a safetensors file: {expected}"));
    }
    fs::write(&path, b"\xff\0\0\0\0\0\0\0{\"w\"").unwrap();
    assert_eq!(
        message(SafeTensors::open(&path), &folder),
        format!("{file} is cut off: its header has 255 bytes and 4 are there")
    );

    let none = message(load(folder.path().join("none"), &()), &folder);
    assert_eq!(none, "cannot read `DIR/none`: No such file or directory (os error 2)");
    assert!(message(load(folder.path(), &()), &folder).starts_with("cannot read `DIR`: "));
}

/// Whatever is cut off or changed in a header is an error or another file; nothing panics, and nothing reads past the end.
#[test]
fn every_cut_and_every_flipped_bit() {
    let (_folder, path) = place();
    let tree = (Tensor::new([1.0f32, 2.0]), Tensor::from(3u8), Tensor::new([true]));
    save(&path, &tree).unwrap();
    let content = fs::read(&path).unwrap();
    for end in 0..content.len() {
        fs::write(&path, &content[..end]).unwrap();
        assert!(load(&path, &tree).is_err(), "{end}");
    }
    let header = content.len() - 10;
    for at in 0..header {
        for bit in 0..8 {
            let mut changed = content.clone();
            changed[at] ^= 1 << bit;
            fs::write(&path, &changed).unwrap();
            if let Ok(again) = load(&path, &tree) {
                assert_eq!(all_bits(&again), all_bits(&tree), "byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn files_of_another_tree() {
    let (folder, path) = place();
    let layer = nn::Linear::init(random::key(0), 3, 2, DType::F32);
    save(&path, &vec![layer.clone()]).unwrap();
    let file = "`DIR/x.safetensors`";
    let fail = |like: &[(&str, Tensor)]| {
        let like: BTreeMap<String, Tensor> = like.iter().map(|(name, leaf)| (name.to_string(), leaf.clone())).collect();
        message(load(&path, &like), &folder)
    };
    let (weight, bias) = (Tensor::shape_only([3, 2], DType::F32), Tensor::shape_only([2], DType::F32));
    let both = |name| [("0.bias", bias.clone()), (name, weight.clone())];
    assert_eq!(fail(&both("0.wieght")), format!("{file} has no tensor `0.wieght`; did you mean `0.weight`?"));
    let expected =
        "has no tensor `embedding` (nor 1 more of the tree); it has `0.bias`, `0.weight`, which the tree does not";
    assert_eq!(fail(&[("embedding", weight.clone()), ("head", bias.clone())]), format!("{file} {expected}"));
    assert_eq!(fail(&[("0.bias", bias.clone())]), format!("{file} has 1 tensor that the tree does not: `0.weight`"));
    let wrong = |dtype| [("0.bias", bias.clone()), ("0.weight", Tensor::shape_only([2, 3], dtype))];
    assert_eq!(fail(&wrong(DType::F32)), format!("tensor `0.weight` of {file} is f32[3,2] and must be f32[2,3]"));
    let wrong = [("0.bias", bias.clone()), ("0.weight", Tensor::shape_only([3, 2], DType::F16))];
    assert_eq!(fail(&wrong), format!("tensor `0.weight` of {file} is f32[3,2] and must be f16[3,2]"));
    let error = load(&path, &vec![nn::Linear::init(random::key(0), 2, 2, DType::F32)]).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Shape, "load"));
    let failed = nn::Linear { bias: Some(Tensor::full([2], 1e9, DType::F16)), ..layer.clone() };
    let expected = format!("tensor `bias` of {file}: the scalar 1000000000.0 is out of range for f16");
    let other = folder.path().join("other");
    assert_eq!(message(save(&other, &failed), &folder), expected.replace("x.safetensors", "other"));
    assert_eq!(message(save(&other, &weight), &folder).split(": ").next(), Some("tensor `tensor` of `DIR/other`"));
    assert_eq!(files(folder.path()), ["x.safetensors"]);

    let options = LoadOptions { cast_floats: true, ignore_surplus: true };
    let like: BTreeMap<String, Tensor> = [("0.weight".to_string(), Tensor::shape_only([3, 2], DType::F64))].into();
    let cast = load_with(&options, &path, &like).unwrap();
    assert_eq!(bits(&cast["0.weight"]), bits(&layer.weight.to_dtype(DType::F64)));
    // An integer is not a float.
    let like: BTreeMap<String, Tensor> = [("0.weight".to_string(), Tensor::shape_only([3, 2], DType::I32))].into();
    let expected = format!("tensor `0.weight` of {file} is f32[3,2] and must be i32[3,2]");
    assert_eq!(message(load_with(&options, &path, &like), &folder), expected);
}

#[test]
fn what_was_there_stays() {
    let (folder, path) = place();
    save(&path, &Tensor::from(1.0f32)).unwrap();
    let before = fs::read(&path).unwrap();
    // The second tensor fails once the first is written.
    let failing = vec![Tensor::zeros([100], DType::F64), Tensor::shape_only([2], DType::F32)];
    save(&path, &failing).unwrap_err();
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(files(folder.path()), ["x.safetensors"]);

    let missing = message(save(folder.path().join("no/x"), &failing[0]), &folder);
    assert!(missing.starts_with("cannot write `DIR/no/x`: No such file or directory"), "{missing}");
    let is_folder = message(save(folder.path(), &failing[0]), &folder);
    assert_eq!(is_folder, "`DIR` is not a file, and is not replaced by one");
    #[cfg(unix)]
    {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt};
        let device = message(save("/dev/full", &failing[0]), &folder);
        assert_eq!(device, "`/dev/full` is not a file, and is not replaced by one");
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
        // The mode of any new file of this process.
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }
    // A name without a folder is in the working folder.
    let relative = PathBuf::from(format!("remat-io-test-{}.safetensors", std::process::id()));
    save(&relative, &failing[0]).unwrap();
    assert_eq!(all_bits(&load(&relative, &failing[0]).unwrap()), all_bits(&failing[0]));
    fs::remove_file(&relative).unwrap();
}

/// What a process of the test below does; nothing in an ordinary run.
#[test]
fn worker() {
    let Some(path) = std::env::var_os("REMAT_TEST_SAVE") else { return };
    let tree: BTreeMap<String, Tensor> =
        ["first", "second"].map(|name| (name.to_string(), Tensor::ones([40_000], DType::F64))).into();
    println!("saved {:?}", save(path, &tree).map_err(|error| error.message().to_string()));
}

/// A limit on the size of files is an error in the middle of writing, as a full disk is.
#[cfg(unix)]
#[test]
fn a_full_disk() {
    let (folder, path) = place();
    save(&path, &Tensor::from(1.0f32)).unwrap();
    let before = fs::read(&path).unwrap();
    let saved = |blocks: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" worker --exact --nocapture");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env("REMAT_TEST_SAVE", &path);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let start = text.find("saved ").unwrap_or_else(|| panic!("{text}"));
        text[start..].lines().next().unwrap().replace(folder.path().to_str().unwrap(), "DIR")
    };
    // Blocks of 512 bytes: less than a tensor, and less than both.
    let message = saved("300");
    assert_eq!(
        message,
        r#"saved Err("cannot write tensor `first` of `DIR/x.safetensors`: File too large (os error 27)")"#
    );
    let message = saved("900");
    assert_eq!(
        message,
        r#"saved Err("cannot write tensor `second` of `DIR/x.safetensors`: File too large (os error 27)")"#
    );
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(files(folder.path()), ["x.safetensors"]);
    assert_eq!(saved("unlimited"), "saved Ok(())");
}

#[test]
fn tensors_on_a_device_stay_there() {
    let Some(device) = installed("tensors on a device", Device::xla_cpu(0)) else { return };
    let (_folder, path) = place();
    let there = tree::map(&nn::Linear::init(random::key(0), 3, 2, DType::F32), |leaf| leaf.to_device(&device));
    save(&path, &there).unwrap();
    let again = load(&path, &there).unwrap();
    assert_eq!(again.weight.device().unwrap().name(), "xla-cpu:0");
    assert_eq!(all_bits(&again), all_bits(&there));
    // To the host where the leaf has no device, or is there.
    let like = tree::map(&there, |leaf| Tensor::shape_only(leaf.shape().unwrap(), DType::F32));
    assert_eq!(load(&path, &like).unwrap().weight.device().unwrap().name(), "cpu");
    let like = tree::map(&there, |leaf| leaf.to_device(&Device::cpu()));
    let here = load(&path, &like).unwrap();
    assert_eq!(here.weight.device().unwrap().name(), "cpu");
    assert!(matches!(here.weight.array().unwrap().data(), Data::F32(_)));
}
