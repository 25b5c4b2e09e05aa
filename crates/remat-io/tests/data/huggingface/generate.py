#!/usr/bin/env python3
"""Small random models of `transformers`, and the logits that it computes: what tests/huggingface.rs loads.

    python generate.py               # writes the folders beside this file; needs transformers 5, torch, safetensors
    python generate.py --check F ..  # prints the logits of the models in folders for the tokens of the tests, one number a line

Every folder is as `save_pretrained` writes it, with `expected.safetensors` beside it: tokens, and logits in float32 of the stored weights.
"""

import glob
import json
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = torch.tensor([[(7 * i + 11 * j * j + 3) % 61 for i in range(12)] for j in range(2)])


def gpt2(**changes):
    sizes = dict(vocab_size=61, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    return GPT2LMHeadModel(GPT2Config(**sizes | changes))


def llama(**changes):
    sizes = dict(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
    )
    return LlamaForCausalLM(LlamaConfig(**sizes | changes))


def randomised(model, seed):
    """Weights with which every part counts: larger ones than those of training, and no biases of zeros or scales of ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_norm = weight.dim() == 1 and name.endswith("weight")
            weight.copy_(1 + 0.2 * noise if is_norm else 0.15 * noise)
    return model


def logits(model):
    with torch.no_grad():
        return model.float().eval()(TOKENS).logits


def write(name, model, max_shard_size="50GB", change=None):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    os.path.exists(path := os.path.join(folder, "generation_config.json")) and os.remove(path)
    if change:
        change(folder)
    # Of the weights as they are stored.
    expected = logits(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    save_file({"tokens": TOKENS, "logits": expected.contiguous()}, os.path.join(folder, "expected.safetensors"))
    print(name, expected.abs().max().item())


def as_of_2019(folder):
    """The names of the files of OpenAI's models: no prefix, the masks of attention, and a configuration of another age."""
    path = os.path.join(folder, "model.safetensors")
    old = {name.removeprefix("transformer."): weight for name, weight in load_file(path).items()}
    for layer in range(2):
        old[f"h.{layer}.attn.bias"] = torch.ones(16, 16).tril().view(1, 1, 16, 16)
    save_file(old, path, metadata={"format": "pt"})
    config = dict(
        activation_function="gelu_new",
        architectures=["GPT2LMHeadModel"],
        layer_norm_epsilon=1e-05,
        model_type="gpt2",
        n_ctx=16,
        n_embd=16,
        n_head=2,
        n_layer=2,
        n_positions=16,
        resid_pdrop=0.1,
        vocab_size=61,
    )
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)


def with_version_4(folder):
    """The rotary base beside the scaling, as version 4 of transformers writes it, and buffers of older versions."""
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope
    with open(path, "w") as file:
        json.dump(config, file, indent=2)


def main():
    llama3 = dict(
        rope_type="llama3",
        rope_theta=500.0,
        factor=4.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8,
    )
    linear = dict(rope_type="linear", rope_theta=300.0, factor=2.0)
    write("gpt2", randomised(gpt2(), 0))
    write("gpt2-untied-sharded", randomised(gpt2(tie_word_embeddings=False, n_inner=40), 1), max_shard_size="12KB")
    write("gpt2-2019-f16", randomised(gpt2(), 2).half(), change=as_of_2019)
    write("llama-sharded", randomised(llama(rope_parameters=llama3), 3), max_shard_size="10KB")
    write(
        "llama-tied-biases-bf16",
        randomised(llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=6), 4).bfloat16(),
    )
    write("llama-version-4", randomised(llama(rope_parameters=linear), 5), change=with_version_4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        for folder in sys.argv[2:]:
            model, problems = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
            assert not any(problems.values()), problems
            stored = {weight.dtype for path in glob.glob(folder + "/*.safetensors") for weight in load_file(path).values()}
            assert stored == {AutoConfig.from_pretrained(folder).dtype}, stored
            print("\n".join(repr(x) for x in logits(model).flatten().tolist()))
    else:
        main()
