"""Writes vectors.txt: what PyTorch and transformers compute in f64 (norms of Llama, angles and losses in f32), for crates/remat/tests/nn.

    pip install torch==2.15.0 transformers==5.23.0
    python generate.py > vectors.txt

A line is a case: name, then numbers. Element i of leaf k of a model, in the order and layout of the trees of remat, is
0.4 sin(0.7 i + 1.3 k), and that of a scale of a norm is 1 more. Inputs are cos(0.9 i).
"""

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

torch.set_default_dtype(torch.float64)


def emit(name, x):
    print(name, *(f"{float(value):.12g}" for value in x.detach().reshape(-1)))


def leaf(k, shape, is_scale=False):
    n = int(np.prod(shape))
    values = 0.4 * np.sin(0.7 * np.arange(n) + 1.3 * k) + (1.0 if is_scale else 0.0)
    return torch.tensor(values.reshape(shape))


def fill(parameters):
    """Parameters in the order of our leaves, each with whether ours is the transpose, and whether it is a scale."""
    for k, (parameter, transposed, is_scale) in enumerate(parameters):
        shape = tuple(reversed(parameter.shape)) if transposed else tuple(parameter.shape)
        values = leaf(k, shape, is_scale)
        with torch.no_grad():
            parameter.copy_(values.T if transposed else values)


def same(module):
    return [(p, False, False) for p in module.parameters()]


def norm(module):
    return [(p, False, name == "weight") for name, p in module.named_parameters()]


def linear(module):
    """nn.Linear has [outputs, inputs]."""
    return [(p, p.dim() == 2, False) for p in module.parameters()]


def tokens(vocabulary, positions):
    return torch.arange(2 * positions).reshape(2, positions) * 7 % vocabulary


def decoder(name, model, parameters, vocabulary, positions):
    model = model.double().eval()
    fill(parameters(model))
    ids = tokens(vocabulary, positions)
    out = model(ids, labels=ids)
    emit(f"{name}.logits", out.logits)
    emit(f"{name}.loss", out.loss)


def gpt2(name, **options):
    config = GPT2Config(vocab_size=19, n_positions=12, n_embd=8, n_layer=2, n_head=2, **options)

    def parameters(model):
        t = model.transformer
        order = same(t.wte) + same(t.wpe)
        for block in t.h:
            order += norm(block.ln_1) + same(block.attn.c_attn) + same(block.attn.c_proj)
            order += norm(block.ln_2) + same(block.mlp.c_fc) + same(block.mlp.c_proj)
        order += norm(t.ln_f)
        return order if config.tie_word_embeddings else order + linear(model.lm_head)

    decoder(name, GPT2LMHeadModel(config), parameters, 19, 9)


def llama(name, **options):
    config = LlamaConfig(
        vocab_size=19, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, **options,
    )

    def parameters(model):
        order = same(model.model.embed_tokens)
        for block in model.model.layers:
            attention, mlp = block.self_attn, block.mlp
            order += norm(block.input_layernorm)
            for part in [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]:
                order += linear(part)
            order += norm(block.post_attention_layernorm)
            for part in [mlp.gate_proj, mlp.up_proj, mlp.down_proj]:
                order += linear(part)
        order += norm(model.model.norm)
        return order if config.tie_word_embeddings else order + linear(model.lm_head)

    decoder(name, LlamaForCausalLM(config), parameters, 19, 9)


def rotary():
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    x = torch.cos(0.9 * torch.arange(2 * 5 * 3 * 6)).reshape(2, 5, 3, 6)
    table = create_sinusoidal_positions(40, 6).double()[None, 3:8].repeat(2, 1, 1)
    sin, cos = torch.split(table, 3, dim=-1)
    emit("rotary.neighbours", apply_rotary_pos_emb(x, sin, cos))


def models():
    gpt2("gpt2")
    gpt2("gpt2.options", n_inner=12, layer_norm_epsilon=1e-3, tie_word_embeddings=False)
    llama("llama")
    llama("llama.options", num_key_value_heads=2, head_dim=6, rms_norm_eps=1e-3, attention_bias=True, mlp_bias=True,
          tie_word_embeddings=True,
          rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
    rotary()


def inputs(*shape):
    return torch.cos(0.9 * torch.arange(int(np.prod(shape)))).reshape(shape)


def layers():
    """Transposed convolutions, pooling, batch norm with statistics, recurrent layers, times."""
    from torch import nn

    for name, conv, shape in [
        ("conv_transpose.1", nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5)),
        ("conv_transpose.2", nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), groups=2, dilation=(1, 2)),
         (2, 4, 3, 4)),
    ]:
        fill(same(conv))
        emit(name, conv(inputs(*shape)))

    x = inputs(2, 3, 5, 7)
    emit("adaptive.avg", nn.AdaptiveAvgPool2d((3, 4))(x))
    emit("adaptive.max", nn.AdaptiveMaxPool2d((3, 4))(x))
    emit("adaptive.larger", nn.AdaptiveAvgPool2d((7, 7))(x))

    batch = nn.BatchNorm2d(3)
    fill(norm(batch))
    batch.train()
    emit("batch_norm.train", batch(x))
    batch(0.5 * x + 1.0)
    emit("batch_norm.mean", batch.running_mean)
    emit("batch_norm.variance", batch.running_var)
    batch.eval()
    emit("batch_norm.eval", batch(x))

    x = inputs(2, 5, 3)
    for name, layer, backwards in [
        ("lstm", nn.LSTM(3, 4, batch_first=True), False), ("gru", nn.GRU(3, 4, batch_first=True), False),
        ("lstm.reverse", nn.LSTM(3, 4, batch_first=True), True),
    ]:
        p = dict(layer.named_parameters())
        order = [(p["weight_ih_l0"], True, False), (p["bias_ih_l0"], False, False), (p["weight_hh_l0"], True, False)]
        if "lstm" in name:
            torch.nn.init.zeros_(p["bias_hh_l0"])
        else:
            order.append((p["bias_hh_l0"], False, False))
        fill(order)
        out, last = layer(x.flip(1) if backwards else x)
        emit(f"{name}.out", out.flip(1) if backwards else out)
        if name == "lstm":
            emit("lstm.cell", last[1])


def vision():
    from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                       intermediate_size=12, num_labels=5, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    model = ViTForImageClassification(config).double().eval()
    e = model.vit.embeddings
    order = same(e.patch_embeddings.projection) + [(e.cls_token, False, False), (e.position_embeddings, False, False)]
    fused = []
    for block in model.vit.layers:
        a = block.attention
        # Ours is one map to queries, keys and values.
        qkv = (torch.nn.Parameter(torch.zeros(24, 8)), torch.nn.Parameter(torch.zeros(24)))
        fused.append((a, qkv))
        order += norm(block.layernorm_before) + [(qkv[0], True, False), (qkv[1], False, False)] + linear(a.o_proj)
        order += norm(block.layernorm_after) + linear(block.mlp.fc1) + linear(block.mlp.fc2)
    fill(order + norm(model.vit.layernorm) + linear(model.classifier))
    with torch.no_grad():
        for a, (weight, bias) in fused:
            for i, part in enumerate([a.q_proj, a.k_proj, a.v_proj]):
                part.weight.copy_(weight[8 * i : 8 * i + 8])
                part.bias.copy_(bias[8 * i : 8 * i + 8])
    emit("vit", model(inputs(2, 3, 8, 8)).logits)

    for name, sizes, kind in [("resnet.basic", [4, 8], "basic"), ("resnet.bottleneck", [8, 16], "bottleneck")]:
        config = ResNetConfig(embedding_size=4, hidden_sizes=sizes, depths=[1, 2], layer_type=kind, num_labels=5)
        model = ResNetForImageClassification(config).double().train()

        def conv(layer):
            return same(layer.convolution) + norm(layer.normalization)

        order = conv(model.resnet.embedder.embedder)
        for stage in model.resnet.encoder.stages:
            for block in stage.layers:
                for layer in block.layer:
                    order += conv(layer)
                if hasattr(block.shortcut, "convolution"):
                    order += conv(block.shortcut)
        fill(order + linear(model.classifier[1]))
        x = inputs(2, 3, 21, 18)
        emit(f"{name}.train", model(x).logits)
        emit(f"{name}.eval", model.eval()(x).logits)


models()
layers()
vision()
