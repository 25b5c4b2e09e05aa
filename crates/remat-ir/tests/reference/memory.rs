use std::sync::Arc;

use remat_ir::{Device, Jaxpr, MemoryStats, Reference};

/// Arguments, outputs, temporaries, peak.
#[track_caller]
fn assert_memory(text: &str, want: [usize; 4]) {
    let jaxpr = Arc::new(Jaxpr::parse(text).unwrap());
    let [arguments, outputs, temporaries, peak] = want;
    let executable = Reference.compile(&jaxpr).unwrap();
    assert_eq!(
        executable.memory(),
        MemoryStats { arguments, outputs, temporaries, overhead: 0, peak, donated_peak: peak }
    );
    let report = executable.memory_report();
    assert_eq!(report.stats, executable.memory());
    assert_eq!(report.live.iter().map(|value| value.bytes).sum::<usize>(), peak);
}

#[track_caller]
fn assert_report(text: &str, want: &str) {
    let jaxpr = Arc::new(Jaxpr::parse(text).unwrap());
    assert_eq!(Reference.compile(&jaxpr).unwrap().memory_report().to_string(), want);
}

#[test]
fn the_report_tells_what_is_live_at_the_peak() {
    // The sine takes the memory of the cosine, and the product that of the sine; the factor is a buffer while it is read.
    let text = "{ lambda ; a:f32[100] b:f32[300]. let
        c:f32[100] = exp a;
        d:f32[100] = name[name=hidden] c;
        e:f32[300] = cos b;
        f:f32[300] = sin e;
        g:f32[300] = mul f 2.0:f32[];
        h:f32[100] = mul d 3.0:f32[] in (g, h) }";
    assert_report(
        text,
        "\
arguments 1.56 KiB, outputs 1.56 KiB, temporaries 4 B; peak 3.13 KiB
live at the peak:
  1.17 KiB  f32[300]  argument 1
  1.17 KiB  f32[300]  output of mul
     400 B  f32[100]  argument 0
     400 B  f32[100]  output of exp 'hidden'
       4 B  f32[]     constant",
    );
}

#[test]
fn the_report_of_a_body_tells_its_operations() {
    let body = "{ lambda ; b:f32[100]. let c:f32[100] = sin b; d:f32[100] = name[name=wave] c; e:bool[100] = is_finite d; \
                f:f32[100] = mul d b in (f, e) }";
    let text = format!(
        "{{ lambda ; a:f32[100]. let b:f32[100] c:bool[100] = jit[name=f jaxpr={body}] a; d:f32[100] = neg b in (d,) }}"
    );
    assert_report(
        &text,
        "\
arguments 400 B, outputs 400 B, temporaries 100 B; peak 900 B
live at the peak:
  400 B  f32[100]   argument 0
  400 B  f32[100]   output of sin 'wave'
  100 B  bool[100]  is_finite",
    );
}

#[test]
fn the_memory_of_a_chain_does_not_grow_with_its_length() {
    let chain = "b:f32[100] = sin a; c:f32[100] = cos b; d:f32[100] = exp c;";
    assert_memory(&format!("{{ lambda ; a:f32[100]. let {chain} in (d,) }}"), [400, 400, 0, 800]);
    // The square root of the first keeps it alive.
    let text = format!("{{ lambda ; a:f32[100]. let {chain} e:f32[100] = mul d b in (e,) }}");
    assert_memory(&text, [400, 400, 400, 1200]);
}

#[test]
fn outputs_that_are_arguments_or_twice_there_cost_nothing() {
    assert_memory("{ lambda ; a:f32[100]. let  in (a, a) }", [400, 0, 0, 400]);
    assert_memory("{ lambda ; a:f32[100]. let b:f32[100] = neg a in (b, a, b) }", [400, 400, 0, 800]);
    assert_memory(
        "{ lambda ; a:f32[100]. let b:f32[10,10] = reshape[new_sizes=(10, 10)] a in (b,) }",
        [400, 0, 0, 400],
    );
    assert_memory("{ lambda ; . let  in () }", [0, 0, 0, 0]);
}

#[test]
fn the_peak_may_be_before_the_outputs() {
    let text = "{ lambda ; a:f32[]. let
        b:f32[100] = broadcast_in_dim[shape=(100,) broadcast_dimensions=()] a;
        c:bool[100] = is_finite b;
        d:bool[] = reduce_and[axes=(0,)] c in (d,) }";
    assert_memory(text, [4, 1, 500, 504]);
}

#[test]
fn bodies_count_while_they_run() {
    let body =
        "{ lambda ; b:f32[100]. let c:f32[100] = sin b; d:bool[100] = is_finite c; e:f32[100] = mul c b in (e,) }";
    let text = format!("{{ lambda ; a:f32[100]. let b:f32[100] = jit[name=f jaxpr={body}] a in (b,) }}");
    assert_memory(&text, [400, 400, 100, 900]);
    // The carry is 400 bytes twice at most: the old one until the new one is there.
    let body = "{ lambda ; c:f32[100] x:f32[]. let d:f32[100] = cumsum[axis=0 reverse=False] c; e:f32[100] = add d x in (e, e) }";
    let parameters = "length=5 num_carry=1 num_consts=0 reverse=False unroll=1";
    let text = format!(
        "{{ lambda ; a:f32[100] x:f32[5]. let b:f32[100] c:f32[5,100] = scan[jaxpr={body} {parameters}] a x in (c,) }}"
    );
    // Arguments, stacked outputs, two carries, one slice.
    assert_memory(&text, [420, 2000, 804, 3224]);
}

#[test]
fn loops_and_branches() {
    let cond = "{ lambda ; c:f32[100]. let m:f32[] = reduce_max[axes=(0,)] c; p:bool[] = lt m 9.0:f32[] in (p,) }";
    let body = "{ lambda ; c:f32[100]. let d:f32[100] = add c 1.0:f32[] in (d,) }";
    let parameters = format!("cond_jaxpr={cond} cond_nconsts=0 body_jaxpr={body} body_nconsts=0");
    let text = format!("{{ lambda ; a:f32[100]. let b:f32[100] = while[{parameters}] a in (b,) }}");
    // The first iteration leaves the argument as it is; the others work in place, with one constant or a maximum beside.
    assert_memory(&text, [400, 400, 9, 809]);
    let small = "{ lambda ; a:f32[100]. let  in (a,) }";
    let large = "{ lambda ; a:f32[100]. let b:bool[100] = is_finite a; c:f32[100] = convert_element_type[new_dtype=float32] b in (c,) }";
    let text =
        format!("{{ lambda ; i:i32[] a:f32[100]. let b:f32[100] = cond[branches=({small} {large})] i a in (b,) }}");
    assert_memory(&text, [404, 400, 500, 904]);
}
