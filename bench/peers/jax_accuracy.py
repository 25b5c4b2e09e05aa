"""How far loss, gradients and statistics of programs in f32 are from those in f64, on remat's plugin and on XLA's CPU backend.

    bench/peers/run accuracy [--only TEXT] [--seeds 1] [--json FILE]

The truth is what XLA computes in f64 from the same numbers. A row has the error of the loss, and of the other results the median and the largest error,
over their leaves and over seeds; the error of a leaf is the largest difference by the largest number of the leaf, or by 1e-6 of that of the program.

`moved` is the error of f64 itself if each number of images and parameters is moved by at most half a unit in the last place of f32: programs in f32 are not much
closer. `flips` is how many elements of relu in a million are on the other side of zero than in f64, in remat and XLA: the gradient there is that of
another function. ResNets run with relu, with softplus instead, which is smooth, and with relu whose sides are those of f64 (`forced`).

Programs of flax, optax, equinox and jax.scipy (crates/remat-stablehlo/tests/fixtures/large_programs.py) follow. `bench/peers/run` installs jax and
flax (requirements_jax.txt), builds the plugin, and sets JAX_PLATFORMS and REMAT_PJRT_LIBRARY.
"""

import argparse
import functools
import json
import pathlib
import statistics

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import jax_common

write = jax_common.registered()
BACKENDS = ("remat", "cpu")


class Relu(nn.Module):
    """relu, or softplus, or relu of which the collection `sides` says which elements pass. Notes the sides."""

    kind: str

    @nn.compact
    def __call__(self, x):
        if self.kind == "softplus":
            return nn.softplus(x)
        side = self.variable("sides", "side", lambda: x > 0)
        if self.kind == "forced":
            return jnp.where(side.value, x, 0)
        side.value = x > 0
        return nn.relu(x)


class Block(nn.Module):
    features: int
    stride: int
    kind: str
    is_bottleneck: bool

    @nn.compact
    def __call__(self, x):
        norm = functools.partial(nn.BatchNorm, use_running_average=False)
        conv = functools.partial(nn.Conv, use_bias=False)
        y, outputs = x, self.features * (4 if self.is_bottleneck else 1)
        if self.is_bottleneck:
            y = Relu(self.kind)(norm()(conv(self.features, (1, 1))(y)))
            y = Relu(self.kind)(norm()(conv(self.features, (3, 3), self.stride)(y)))
            y = norm()(conv(outputs, (1, 1))(y))
        else:
            y = Relu(self.kind)(norm()(conv(self.features, (3, 3), self.stride)(y)))
            y = norm()(conv(outputs, (3, 3))(y))
        if x.shape != y.shape:
            x = norm()(conv(outputs, (1, 1), self.stride)(x))
        return Relu(self.kind)(x + y)


class ResNet(nn.Module):
    """ResNets as in flax's examples, with average pooling, which has no sides."""

    stages: tuple
    kind: str
    is_bottleneck: bool

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(64, (7, 7), 2, use_bias=False)(x)
        x = Relu(self.kind)(nn.BatchNorm(use_running_average=False)(x))
        x = nn.avg_pool(x, (3, 3), (2, 2), "SAME")
        for i, count in enumerate(self.stages):
            for j in range(count):
                x = Block(64 << i, 2 if i > 0 and j == 0 else 1, self.kind, self.is_bottleneck)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
        x = x + nn.Dense(256)(nn.gelu(nn.Dense(1024)(nn.LayerNorm()(x))))
        return nn.Dense(10)(nn.LayerNorm()(x).mean(1))


class Lstm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.RNN(nn.LSTMCell(128, param_dtype=x.dtype))(x)[:, -1])


INPUTS = {
    "normal": lambda draw, shape: draw.normal(size=shape),
    "pixels": lambda draw, shape: draw.integers(0, 256, size=shape),
    "mean 100": lambda draw, shape: 100 + draw.normal(size=shape),
    "equal": lambda draw, shape: np.full(shape, 0.7),
    "zeros": lambda draw, shape: np.zeros(shape),
}


def models():
    """Name, module, and the kind and shape of its input."""
    for kind in ("relu", "forced", "softplus"):
        for input in INPUTS:
            yield f"ResNet-18, {kind}, {input}", ResNet((2, 2, 2, 2), kind, False), input, (8, 64, 64, 3)
    for kind in ("relu", "forced"):
        for input in ("normal", "equal"):
            yield f"ResNet-50, {kind}, {input}", ResNet((3, 4, 6, 3), kind, True), input, (4, 64, 64, 3)
    for input in ("normal", "mean 100", "equal"):
        yield f"transformer, {input}", Transformer(), input, (4, 64, 256)
        yield f"LSTM, {input}", Lstm(), input, (8, 32, 64)


def step(module):
    """Loss, gradient and new statistics; and the sides."""

    def loss(params, others, images, classes):
        logits, updated = module.apply({"params": params, **others}, images, mutable=["batch_stats", "sides"])
        logp = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logp, classes[:, None], axis=1).mean(), updated

    def of(params, others, images, classes):
        (value, updated), gradient = jax.value_and_grad(loss, has_aux=True)(params, others, images, classes)
        return (value, gradient, updated.get("batch_stats", {})), updated.get("sides", {})

    return of


def on(backend, function, args):
    """The results of a program, with arguments in f32 or, where they are, in f64."""
    is_double = any(x.dtype == np.float64 for x in jax.tree.leaves(args))
    with jax.enable_x64(is_double):
        args = jax.device_put(args, jax.devices(backend)[0])
        return jax.tree.map(np.asarray, jax.jit(function)(*args))


def double(args):
    return jax.tree.map(lambda x: np.asarray(x, np.float64) if x.dtype == np.float32 else x, args)


def errors(got, truth):
    """The error of each leaf that is a float."""
    leaves = [(np.asarray(g, np.float64), np.asarray(t, np.float64)) for g, t in zip(*map(jax.tree.leaves, (got, truth)), strict=True) if t.dtype.kind == "f"]
    largest = lambda x: np.abs(x).max(initial=0)
    least = 1e-6 * max(largest(truth) for _, truth in leaves)
    return [largest(got - truth) / max(largest(truth), least, 1e-300) for got, truth in leaves]


def flips(got, truth):
    """How many sides in a million differ."""
    pairs = list(zip(*map(jax.tree.leaves, (got, truth)), strict=True))
    total = sum(t.size for _, t in pairs)
    return 1e6 * sum((g != t).sum() for g, t in pairs) / total if total else 0.0


def moved(draw, tree):
    """Each number in f64, moved by at most half a unit in the last place of f32."""
    return jax.tree.map(lambda x: x * (1 + draw.uniform(-1, 1, size=x.shape) * 2.0**-24), double(tree))


def measured(module, input, shape, seed):
    """The errors of one model by backend, and the flips."""
    draw = np.random.default_rng(seed)
    images, classes = INPUTS[input](draw, shape).astype(np.float32), draw.integers(0, 10, size=shape[0]).astype(np.int32)
    variables = jax.tree.map(np.asarray, dict(jax.jit(module.init)(jax.random.key(seed), images)))
    params = variables.pop("params")
    function = step(module)
    if getattr(module, "kind", None) == "forced":
        plain = step(module.clone(kind="relu"))
        variables["sides"] = on("cpu", plain, double((params, variables, images, classes)))[1]
    args = (params, variables, images, classes)
    truth, sides = on("cpu", function, double(args))
    nearby = (moved(draw, params), double(variables), moved(draw, images), classes)
    record = {"moved": errors(on("cpu", function, nearby)[0], truth)}
    for backend in BACKENDS:
        got, got_sides = on(backend, function, args)
        record[backend], record[f"{backend}_flips"] = errors(got, truth), flips(got_sides, sides)
    return record


# Their random numbers are others in f64.
DRAWN = ("vae", "random_more")

# What the names of the programs of others begin with where some are chosen: `--only programs` runs all of them.
OTHERS = "programs: "


def programs(names):
    """The errors of these programs of others, but for those whose constants are of f32 alone."""
    for name in names:
        function, shapes, *_ = write.LARGE[name]
        args = tuple(write.argument(i, shape, dtype) for i, (shape, dtype) in enumerate(shapes))
        try:
            truth = on("cpu", function, double(args))
        except TypeError as error:
            print(f"{name}: not in f64: {str(error).splitlines()[0][:100]}")
            continue
        yield name, {backend: errors(on(backend, function, args), truth) for backend in BACKENDS}


def row(name, records):
    of = lambda what: [x for record in records for x in record.get(what, [])]
    shown = " ".join(f"{f(of(what)):9.1e}" if of(what) else f"{'':9}" for f in (statistics.median, max) for what in ("remat", "cpu", "moved"))
    ratios = [a / max(b, 2.0**-26) for record in records for a, b in zip(record["remat"], record["cpu"]) if a > 2.0**-22]
    ratio = f"{statistics.geometric_mean(ratios):6.2f}" if ratios else f"{'':6}"
    flipped = " ".join(f"{statistics.mean(r.get(f'{backend}_flips', 0) for r in records):7.2f}" for backend in BACKENDS)
    print(f"{name:44} {shown} {ratio} {flipped}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run what contains this text; `programs` stands for those of others")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    of_models = {name: model for name, *model in models()}
    of_others = {OTHERS + name: name for name in write.LARGE if name not in DRAWN}
    chosen = jax_common.containing(options.only, [*of_models, *of_others])
    print(f"{'':44} {'median':>9} {'':19} {'largest':>9}\n{'':44} " + " ".join(f"{x:>9}" for x in ("remat", "XLA", "moved") * 2) + "  ratio   flips")
    rows = {}
    for name, model in of_models.items():
        if name in chosen:
            rows[name] = [measured(*model, seed) for seed in range(options.seeds)]
            row(name, rows[name])
    for name, record in programs([name for label, name in of_others.items() if label in chosen]):
        rows[name] = [record]
        row(name, rows[name])
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(dict(jax=jax.__version__, rows=rows), indent=1))


if __name__ == "__main__":
    main()
