"""Writes vectors.txt: what optax computes in f64, for crates/remat/tests/optim.rs.

    pip install jax==0.10.2 optax==0.2.8
    python generate.py > vectors.txt

A line is a case: name, then numbers. The model is a matrix of 2 by 2 and a vector of 3, in this order; its gradients in
step t are cos(7 i + 3 t) for the number i of the element, times (t + 1). Cases whose name starts with "shapes." have a model of
5 by 3, 2 by 4 by 3, 3, a scalar and an empty vector, and gradients without the factor.

8-bit Adam is not in optax: its case is AdamW as optax has it, with moments that pass through the table of bitsandbytes
(create_dynamic_map) between steps.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import optax

STEPS = 20


def emit(name, x):
    print(name, *(repr(float(value)) for value in np.asarray(x).reshape(-1)))


def join(tree):
    return np.concatenate([np.asarray(tree["a"]).reshape(-1), np.asarray(tree["b"])])


def split(x):
    return {"a": jnp.asarray(x[:4].reshape(2, 2)), "b": jnp.asarray(x[4:])}


def gradient(step):
    return split(np.cos(7.0 * np.arange(7) + 3.0 * step) * (step + 1))


def begin():
    return split(np.linspace(-1.0, 2.0, 7))


def run(name, optimizer, apply=lambda gradient, model: gradient):
    model = begin()
    state = optimizer.init(model)
    for step in range(STEPS):
        updates, state = optimizer.update(apply(gradient(step), model), state, model)
        model = optax.apply_updates(model, updates)
    emit(name, join(model))


SHAPES = [(5, 3), (2, 4, 3), (3,), (), (0,)]


def shapes(x):
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    parts = np.split(x, ends[:-1])
    return {k: jnp.asarray(part.reshape(shape)) for k, part, shape in zip("abcde", parts, SHAPES)}


def run_shapes(name, optimizer):
    model = shapes(np.linspace(-1.0, 2.0, 43))
    state = optimizer.init(model)
    for step in range(STEPS):
        updates, state = optimizer.update(shapes(np.cos(7.0 * np.arange(43) + 3.0 * step)), state, model)
        model = optax.apply_updates(model, updates)
    emit(name, np.concatenate([np.asarray(leaf).reshape(-1) for leaf in model.values()]))


cosine = optax.warmup_cosine_decay_schedule(0.01, 0.2, 2, 5, 0.05)
run("adamw", optax.adamw(0.1))
run("adamw.options", optax.adamw(cosine, b1=0.8, b2=0.9, eps=1e-3, weight_decay=0.1))
run("adamw.matrices", optax.adamw(0.1, weight_decay=0.5, mask={"a": True, "b": False}))
run("sgd", optax.sgd(0.1))
run("sgd.momentum", optax.sgd(0.1, momentum=0.9))
run("sgd.nesterov", optax.sgd(0.1, momentum=0.9, nesterov=True))
run("lion", optax.lion(0.1))
run("lion.options", optax.lion(optax.linear_schedule(0.2, 0.1, 4), b1=0.5, b2=0.8, weight_decay=0.2))
run("clipped", optax.chain(optax.clip_by_global_norm(3.0), optax.sgd(0.1)))
emit("global_norm", optax.global_norm(gradient(2)))

steps = jnp.arange(12)
emit("schedule.linear", jax.vmap(optax.linear_schedule(0.5, 2.0, 7))(steps))
emit("schedule.cosine", jax.vmap(optax.cosine_decay_schedule(0.5, 9, alpha=0.1))(steps))
emit("schedule.warmup_cosine", jax.vmap(optax.warmup_cosine_decay_schedule(0.1, 1.0, 3, 9, 0.25))(steps))
emit("schedule.piecewise", jax.vmap(optax.piecewise_constant_schedule(0.5, {3: 0.5, 8: 0.1}))(steps))
joined = optax.join_schedules([optax.linear_schedule(0.0, 1.0, 4), optax.cosine_decay_schedule(1.0, 5), lambda _: 0.25], [4, 10])
emit("schedule.joined", jax.vmap(joined)(steps))

run("clipped.value", optax.chain(optax.clip(1.5), optax.sgd(0.1)))
run("sgd.decayed", optax.chain(optax.add_decayed_weights(0.3, mask={"a": True, "b": False}), optax.sgd(0.1, momentum=0.9)))
run("adamw.frozen", optax.partition({"on": optax.adamw(0.1), "off": optax.set_to_zero()}, {"a": "off", "b": "on"}))
run("accumulated", optax.MultiSteps(optax.adamw(0.1), 3, accumulator_dtype=jnp.float64))

for name, options in {
    "adafactor": {},
    "adafactor.plain": dict(multiply_by_parameter_scale=False, clipping_threshold=None, decay_rate=0.6),
    "adafactor.options": dict(momentum=0.9, weight_decay_rate=0.01, weight_decay_mask=lambda t: {k: k == "a" for k in t}),
}.items():
    run_shapes("shapes." + name, optax.adafactor(0.1, min_dim_size_to_factor=3, **options))


def muon(axes, **options):
    return optax.contrib.muon(0.1, muon_weight_dimension_numbers=lambda t: jax.tree.map(lambda _: axes, t), **options)


for name, options in {
    "muon": {},
    "muon.options": dict(nesterov=False, weight_decay=0.1, consistent_rms=0.2, beta=0.8, ns_steps=3),
}.items():
    matrix = muon(optax.contrib.MuonDimensionNumbers(0, 1), **options)
    batch = muon(optax.contrib.MuonDimensionNumbers(1, 2), **options)
    optimizers = {"matrix": matrix, "batch": batch, "rest": optax.adamw(0.01)}
    run_shapes("shapes." + name, optax.partition(optimizers, dict(zip("abcde", ["matrix", "batch", "rest", "rest", "rest"]))))


def averages(name, update, value):
    state, optimizer = None, optax.sgd(0.1)
    model = begin()
    sgd, state = optimizer.init(model), update(None, model)
    for step in range(STEPS):
        updates, sgd = optimizer.update(gradient(step), sgd, model)
        model = optax.apply_updates(model, updates)
        state = update(state, model)
    emit(name, join(value(state)))


ema = optax.ema(0.9)
averages("ema", lambda s, m: (m, ema.init(m)) if s is None else ema.update(m, s[1]), lambda s: s[0])
averages("ema.start", lambda s, m: m if s is None else optax.incremental_update(m, s, 0.1), lambda s: s)


def dynamic_map(signed):
    """The middles of bins, and the lower ends of those bins; bitsandbytes' create_dynamic_map(signed) has the middles, 0 and 1."""
    middles, ends = [], []
    for i in range(7):
        edges = np.linspace(0.1, 1.0, (2**i if signed else 2 ** (i + 1)) + 1)
        middles += list(10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2)
        ends += list(10.0 ** (i - 6) * edges[:-1])
    return np.array([0.0] + middles + [1.0]), np.array(ends + [(1.0 + middles[-1]) / 2])


def through_code(x, signed, block):
    middles, ends = dynamic_map(signed)
    out = np.zeros_like(x)
    for start in range(0, x.size, block):
        part = x[start : start + block]
        scale = np.abs(part).max()
        if scale > 0:
            code = np.searchsorted(ends, np.abs(part) / scale, side="right")
            # No negative 1, and no square but 0 is 0.
            code = np.where(part < 0, np.minimum(code, 127), code) if signed else np.maximum(code, part > 0)
            out[start : start + block] = np.sign(part) * middles[code] * scale
    return out


def adam8bit(name, block, learning_rate=0.1, b1=0.9, b2=0.999, eps=1e-8, weight_decay=1e-4):
    model = begin()
    moments = [{k: np.zeros(v.shape) for k, v in model.items()} for _ in range(2)]
    for step in range(STEPS):
        g = gradient(step)
        for k, p in model.items():
            mu = b1 * moments[0][k] + (1 - b1) * g[k]
            nu = b2 * moments[1][k] + (1 - b2) * g[k] ** 2
            update = mu / (1 - b1 ** (step + 1)) / (np.sqrt(nu / (1 - b2 ** (step + 1))) + eps)
            model[k] = p - learning_rate * (update + weight_decay * p)
            moments[0][k] = through_code(np.asarray(mu).reshape(-1), True, block).reshape(p.shape)
            moments[1][k] = through_code(np.asarray(nu).reshape(-1), False, block).reshape(p.shape)
    emit(name, join(model))


adam8bit("adam8bit", 2)
adam8bit("adam8bit.one_block", 256)
