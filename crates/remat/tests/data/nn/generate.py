"""Writes vectors.txt: what PyTorch, transformers and diffusers compute in f64 (norms of Llama, angles and losses in f32), for crates/remat/tests/nn.

    pip install torch==2.15.0 transformers==5.23.0 diffusers==0.42.1
    python generate.py > vectors.txt

A line is a case: name, then numbers. Those of a gradient are, for each leaf in order, the sum of its elements times cos(0.9 i). Element i of leaf k of a model, in the order and layout of the trees of remat, is
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


class Fused:
    """One parameter in place of several of a linear map each, side by side, as ours is one map to queries, keys and values."""

    def __init__(self, parts):
        self.parts = parts
        self.shape = torch.Size([sum(part.shape[0] for part in parts), *parts[0].shape[1:]])

    @property
    def grad(self):
        return torch.cat([part.grad for part in self.parts])

    def copy_(self, values):
        for part, own in zip(self.parts, values.split([part.shape[0] for part in self.parts])):
            part.copy_(own)


def fused(*modules):
    """The linear maps as one of ours."""
    return [(Fused([m.weight for m in modules]), True, False), (Fused([m.bias for m in modules]), False, False)]


def emit_gradient(name, loss, parameters):
    loss.backward()
    gradients = [p.grad.T.reshape(-1) if transposed else p.grad.reshape(-1) for p, transposed, _ in parameters]
    emit(name, torch.stack([g @ torch.cos(0.9 * torch.arange(g.numel())) for g in gradients]))


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
    order = parameters(model)
    fill(order)
    ids = tokens(vocabulary, positions)
    out = model(ids, labels=ids)
    emit(f"{name}.logits", out.logits)
    emit(f"{name}.loss", out.loss)
    emit_gradient(f"{name}.gradient", out.loss, order)


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
        out = conv(inputs(*shape))
        emit(name, out)
        emit_gradient(f"{name}.gradient", out.square().mean(), same(conv))

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
        emit_gradient(f"{name}.gradient", out.square().mean(), order)


def vision():
    from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                       intermediate_size=12, num_labels=5, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    model = ViTForImageClassification(config).double().eval()
    e = model.vit.embeddings
    order = same(e.patch_embeddings.projection) + [(e.cls_token, False, False), (e.position_embeddings, False, False)]
    for block in model.vit.layers:
        a = block.attention
        order += norm(block.layernorm_before) + fused(a.q_proj, a.k_proj, a.v_proj) + linear(a.o_proj)
        order += norm(block.layernorm_after) + linear(block.mlp.fc1) + linear(block.mlp.fc2)
    order += norm(model.vit.layernorm) + linear(model.classifier)
    fill(order)
    logits = model(inputs(2, 3, 8, 8)).logits
    emit("vit", logits)
    emit_gradient("vit.gradient", logits.square().mean(), order)

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
        order += linear(model.classifier[1])
        fill(order)
        x = inputs(2, 3, 21, 18)
        logits = model(x).logits
        emit(f"{name}.train", logits)
        emit(f"{name}.eval", model.eval()(x).logits)
        emit_gradient(f"{name}.gradient", logits.square().mean(), order)


def unets():
    """U-Nets of diffusers with attention at one level, told a time or not."""
    from diffusers import UNet2DModel

    def block(resnet, attention, has_time):
        order = norm(resnet.norm1) + same(resnet.conv1)
        order += linear(resnet.time_emb_proj) if has_time else []
        order += norm(resnet.norm2) + same(resnet.conv2)
        order += same(resnet.conv_shortcut) if resnet.conv_shortcut else []
        if attention:
            order += norm(attention.group_norm) + fused(attention.to_q, attention.to_k, attention.to_v) + linear(attention.to_out[0])
        return order

    def level(part, samplers, has_time):
        attentions = getattr(part, "attentions", [None] * len(part.resnets))
        order = [entry for pair in zip(part.resnets, attentions) for entry in block(*pair, has_time)]
        return order + [entry for sampler in samplers or [] for entry in same(sampler.conv)]

    for name, has_time in [("unet", False), ("unet.time", True)]:
        model = UNet2DModel(
            in_channels=3, out_channels=3, block_out_channels=(4, 8, 8), layers_per_block=1, norm_num_groups=2,
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8, add_attention=False, flip_sin_to_cos=False, freq_shift=0,
        ).double()
        order = []
        if has_time:
            order += linear(model.time_embedding.linear_1) + linear(model.time_embedding.linear_2)
        order += same(model.conv_in)
        for part in model.down_blocks:
            order += level(part, part.downsamplers, has_time)
        for resnet in model.mid_block.resnets:
            order += block(resnet, None, has_time)
        for part in model.up_blocks:
            order += level(part, part.upsamplers, has_time)
        order += norm(model.conv_norm_out) + same(model.conv_out)
        fill(order)
        if not has_time:
            # What is added is 0.
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    if "time_emb_proj" in key:
                        parameter.zero_()
        out = model(inputs(2, 3, 8, 12), torch.tensor([3, 70])).sample
        emit(name, out)
        emit_gradient(f"{name}.gradient", out.square().mean(), order)


models()
layers()
vision()
unets()
