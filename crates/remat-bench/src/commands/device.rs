//! `remat-bench device`: whether a device of XLA is there, and computes.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use remat::{DType, Device, JitOptions, Tensor, jit_with, random};
use remat_command::arguments::up_to;
use remat_command::times::median;
use remat_xla::Xla;
use serde::Serialize;

use crate::case::Float;

/// Arguments of `remat-bench device`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device, such as cuda:0 or xla-cpu
    #[arg(long)]
    device: String,
    /// Rows and columns of the products that are timed
    #[arg(long, default_value_t = 8192, value_parser = up_to(1 << 16))]
    size: usize,
    /// How often each is timed
    #[arg(long, default_value_t = 10, value_parser = up_to(1_000_000))]
    repeat: usize,
}

/// Rows and columns of the products that are compared with the native engine's.
const COMPARED: usize = 384;

/// A line of JSON.
#[derive(Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Line {
    /// The device. Sizes are bytes; `None` where the plugin does not count.
    Device { name: String, kind: String, platform: String, devices: usize, in_use: Option<u64>, limit: Option<u64> },
    /// A scalar function: its value, and the seconds of the first call, which compiles.
    Scalar { value: f32, seconds: f64 },
    /// A product of square matrices.
    Product {
        dtype: &'static str,
        size: usize,
        seconds: f64,
        tflops: f64,
        /// The largest difference to the native engine's product of smaller matrices, relative to its largest element.
        difference: f64,
        /// The largest that is right.
        allowed: f64,
    },
}

/// Runs a scalar program and products of matrices of f32 and bf16, each compared with the native engine, and prints a line of JSON of each as soon
/// as it is there.
///
/// # Errors
/// If the device is not one of XLA, is missing, or computes something else.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let device = Device::named(&args.device)?;
    let xla = Xla::named(device.name())?.with_context(|| format!("{} is not a device of XLA", device.name()))?;
    let memory = xla.device_memory()?;
    say(
        out,
        &Line::Device {
            name: device.name().to_string(),
            kind: xla.kind()?,
            platform: xla.platform_version()?,
            devices: xla.num_devices(),
            in_use: memory.map(|memory| memory.in_use),
            limit: memory.and_then(|memory| memory.limit),
        },
    )?;
    let options = on(&device);
    let started = Instant::now();
    let value = jit_with(&options, |x: &Tensor| x * 2.0 + 1.0).call(Tensor::from(3.0f32))?.item::<f32>()?;
    say(out, &Line::Scalar { value, seconds: started.elapsed().as_secs_f64() })?;
    ensure!(value == 7.0, "2 * 3 + 1 is {value} on {}", device.name());
    for dtype in [Float::F32, Float::Bf16] {
        let line = product(args, &device, dtype)?;
        say(out, &line)?;
        if let Line::Product { dtype, difference, allowed, .. } = line {
            ensure!(difference <= allowed, "a product of {dtype} differs by {difference:.1e} from the native engine's");
        }
    }
    Ok(())
}

fn say(out: &mut impl Write, line: &Line) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(line)?)?;
    Ok(out.flush()?)
}

fn on(device: &Device) -> JitOptions {
    JitOptions { device: Some(device.clone()), ..JitOptions::default() }
}

fn product(args: &Args, device: &Device, dtype: Float) -> Result<Line> {
    let operands = |size: usize| -> remat::Result<(Tensor, Tensor)> {
        let drawn = |key| random::uniform(key, [size, size], DType::F32, -1.0..1.0).to_dtype(dtype.dtype());
        let both = |_: &()| {
            let [a, b] = random::key(0).split().map(drawn);
            (a, b)
        };
        jit_with(&on(device), both).call(())
    };
    let multiply = |(a, b): &(Tensor, Tensor)| a.matmul(b);
    let (a, b) = operands(COMPARED)?;
    let theirs = jit_with(&on(device), multiply).call((a.clone(), b.clone()))?.to_device(&Device::cpu());
    let [a, b] = [a, b].map(|x| x.to_device(&Device::cpu()));
    let ours = jit_with(&on(&Device::cpu()), multiply).call((a, b))?;
    let [ours, theirs] = [ours, theirs].map(|x| x.to_dtype(DType::F64));
    let difference = (&ours - theirs).abs().max(..).item::<f64>()? / ours.abs().max(..).item::<f64>()?;
    let timed = jit_with(&on(device), multiply);
    let operands = operands(args.size)?;
    let mut times = Vec::new();
    for _ in 0..=args.repeat {
        let started = Instant::now();
        timed.call(operands.clone())?.wait()?;
        times.push(started.elapsed().as_secs_f64());
    }
    // The first call compiles.
    times.remove(0);
    let seconds = median(&mut times);
    let (dtype, allowed) = match dtype {
        Float::F32 => ("f32", 1e-5),
        Float::Bf16 => ("bf16", 1e-2),
    };
    let tflops = 2.0 * (args.size as f64).powi(3) / seconds / 1e12;
    Ok(Line::Product { dtype, size: args.size, seconds, tflops, difference, allowed })
}
