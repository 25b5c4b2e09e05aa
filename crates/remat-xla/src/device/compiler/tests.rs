use std::path::Path;

use remat_ir::{Array, Builder, Device, Jaxpr};
use remat_testkit::all_samples;

use super::*;
use crate::pjrt::Buffer;
use crate::{Options, compile_options, stablehlo};

/// The client of the plugin for CPUs, with a cache in a folder, if the plugin is installed.
fn compiler(folder: &Path) -> Option<Compiler> {
    let xla = crate::support::xla()?;
    let plugin = Plugin::find(Platform::Cpu).unwrap();
    let cache = ExecutableCache::new(folder, 1 << 30);
    let compiler = Compiler::new(xla.0.compiler.client.clone(), &plugin, Some(cache));
    assert!(compiler.cached.is_some(), "{:?}", machine(&compiler.client, &plugin));
    Some(compiler)
}

struct Program {
    jaxpr: Jaxpr,
    donates: bool,
}

impl Program {
    fn parse(text: &str) -> Program {
        Program { jaxpr: text.parse().unwrap(), donates: false }
    }

    fn compile(&self, compiler: &Compiler) -> Loaded {
        let options = Options { donates: self.donates, ..Options::default() };
        let module = stablehlo(&self.jaxpr, &options).unwrap();
        let options = compile_options::encoded(Platform::Cpu, &module, 0);
        compiler.compile(&module, &options, [self.jaxpr.in_avals(), self.jaxpr.out_avals()]).unwrap()
    }
}

fn key_of(entry: &Path) -> u128 {
    u128::from_str_radix(entry.file_name().unwrap().to_str().unwrap(), 16).unwrap()
}

/// Bits of the results.
fn run(compiler: &Compiler, loaded: &Loaded, args: &[Array]) -> Vec<String> {
    let buffers: Vec<Buffer> = args.iter().map(|x| compiler.client.upload(x, 0).unwrap()).collect();
    let results = loaded.run(buffers.iter(), |buffer| buffer).unwrap();
    let bits = |array: Array| remat_ir::with_dtype!(array.dtype(), T => format!("{:?}", array.as_slice::<T>()));
    results.iter().map(|result| bits(result.download().unwrap())).collect()
}

/// Every 31st case of the suite, and the operations with attributes that serialization could lose.
#[test]
fn programs_from_disk_give_the_bits_of_compiled_ones() {
    let folder = tempfile::tempdir().unwrap();
    let Some(compiler) = compiler(folder.path()) else { return };
    let cache = &compiler.cached.as_ref().unwrap().cache;
    let mut programs = 0;
    for sample in all_samples().into_iter().step_by(31) {
        let mut b = Builder::new();
        let ins = b.inputs(sample.inputs.iter().map(|x| x.aval().clone()));
        let outs = b.emit(sample.op.clone(), &ins).unwrap();
        let program = Program { jaxpr: b.finish(outs.into_vec()), donates: false };
        if crate::sharding::Placement::of(&program.jaxpr).unwrap().is_some() {
            continue;
        }
        let entries = cache.usage().entries;
        let compiled = program.compile(&compiler);
        let is_new = cache.usage().entries > entries;
        let loaded = program.compile(&compiler);
        assert!(cache.usage().entries <= entries + 1, "{:?} is compiled twice", sample.op);
        programs += usize::from(is_new);
        assert_eq!(loaded.memory().unwrap(), compiled.memory().unwrap());
        let results = [&compiled, &loaded].map(|loaded| run(&compiler, loaded, &sample.inputs));
        assert_eq!(results[0], results[1], "{:?}", sample.op);
    }
    assert!(programs > 50, "{programs}");
}

const LOOP: &str = "{ lambda ; a:f32[64,64]. let
    b:f32[64,64] = scan[jaxpr={ lambda ; c:f32[64,64]. let
        d:f32[64,64] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] c c
        e:f32[64,64] = optimization_barrier d
        f:f32[64,64] = tanh e in (f,) } length=5 num_carry=1 num_consts=0 reverse=False unroll=1] a in (b,) }";

/// A program whose file is damaged in any way is compiled again, and the plugin never reads the file.
#[test]
fn damaged_executables_are_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    let Some(compiler) = compiler(folder.path()) else { return };
    let program = Program::parse("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }");
    let x = Array::from_vec(vec![0.5f32, 1.0, 2.0], [3]).unwrap();
    let expected = run(&compiler, &program.compile(&compiler), std::slice::from_ref(&x));
    let entry = || fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(entry()).unwrap();
    let cache = &compiler.cached.as_ref().unwrap().cache;
    let key = key_of(&entry());
    for damage in 0..20 {
        let mut bytes = whole.clone();
        match damage {
            0 => bytes.clear(),
            1 => bytes.truncate(whole.len() / 2),
            2 => bytes.push(0),
            3 => bytes.fill(0),
            _ => bytes[(damage * whole.len()) / 20] ^= 1 << (damage % 8),
        }
        fs::write(entry(), bytes).unwrap();
        let again = program.compile(&compiler);
        assert_eq!(run(&compiler, &again, std::slice::from_ref(&x)), expected);
        assert!(cache.get(key).is_some(), "it is written again");
    }
}

/// An intact entry that the plugin rejects, such as one in an old format.
#[test]
fn executables_that_the_plugin_refuses_are_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    let Some(compiler) = compiler(folder.path()) else { return };
    let program = Program::parse("{ lambda ; a:f32[3]. let b:f32[3] = cos a in (b,) }");
    let other = Program::parse("{ lambda ; a:i32[2,2]. let b:i32[2,2] = neg a in (b, a) }");
    program.compile(&compiler);
    let key = key_of(&fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path());
    let cache = &compiler.cached.as_ref().unwrap().cache;
    let executable = other.compile(&compiler).serialize().unwrap().unwrap();
    for wrong in [&b""[..], b"not an executable", &executable] {
        cache.put(key, wrong);
        let x = Array::from_vec(vec![0.0f32; 3], [3]).unwrap();
        let again = program.compile(&compiler);
        assert_eq!(run(&compiler, &again, &[x]), ["Some([1.0, 1.0, 1.0])"]);
    }
}

/// Barriers and aliases are in the executable, and so is its memory.
#[test]
fn donation_and_barriers_come_from_disk_too() {
    let folder = tempfile::tempdir().unwrap();
    let Some(compiler) = compiler(folder.path()) else { return };
    let mut memory = Vec::new();
    for donates in [false, true] {
        let program = Program { donates, ..Program::parse(LOOP) };
        let [compiled, loaded] = [program.compile(&compiler), program.compile(&compiler)];
        assert_eq!(compiled.memory().unwrap(), loaded.memory().unwrap());
        memory.push(loaded.memory().unwrap().unwrap());
        let x = Array::from_vec((0..4096).map(|i| (i as f32).sin()).collect(), [64, 64]).unwrap();
        assert_eq!(
            run(&compiler, &compiled, std::slice::from_ref(&x)),
            run(&compiler, &loaded, std::slice::from_ref(&x))
        );
    }
    assert_eq!(compiler.cached.unwrap().cache.usage().entries, 2);
    assert_eq!(memory[0].peak - memory[1].peak, 64 * 64 * 4, "one has the memory of the other");
}

#[test]
fn keys_tell_parts_apart() {
    assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
    assert_ne!(key(&[b"ab", b""]), key(&[b"", b"ab"]));
    assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
}

#[test]
fn cpus_are_known_by_model_and_features() {
    let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\nstepping\t: 8\n\
               cpu MHz\t\t: 2000.1\nsiblings\t: 2\nflags\t\t: fpu sse avx512f\nbogomips\t: 4000\n\nprocessor\t: 1\n";
    let expected = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\nstepping\t: 8\nflags\t\t: fpu sse avx512f";
    assert_eq!(cpu(x86).as_deref(), Some(expected));
    let arm = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
    assert_eq!(cpu(arm).as_deref(), Some("Features\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd40"));
    assert_eq!(cpu("processor\t: 0\n"), None);
    assert_eq!(cpu(""), None);
}

#[test]
fn cpus_are_counted_by_the_mask() {
    let status = "Name:\tremat\nCpus_allowed:\tff,00000000,0000000f\nCpus_allowed_list:\t0-3,64-71\n";
    assert_eq!(allowed_cpus(status), Some(12));
    assert_eq!(allowed_cpus("Name:\tremat\n"), None);
    assert_ne!(threads("1"), threads(""));
    assert_eq!(threads("1"), threads("1"));
}

#[test]
fn flags_may_be_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flags");
    fs::write(&file, "--xla_a=1").unwrap();
    let given = |text: &str| flags(text);
    assert_eq!(given(" --xla_b=2").as_deref(), Some(" --xla_b=2"));
    assert_eq!(given(file.to_str().unwrap()).as_deref(), Some("--xla_a=1"));
    assert_eq!(given("/no/such/file"), None);
}

/// Devices that are requested by name use the user's cache, which the environment variable can turn off.
#[test]
fn an_engine_compiles_by_its_cache() {
    let Some(xla) = crate::support::xla() else { return };
    let is_on = ExecutableCache::of_user().unwrap().is_some_and(|cache| cache.limit() > 0);
    assert_eq!(xla.0.compiler.cached.is_some(), is_on);
    let _ = xla.name();
}
