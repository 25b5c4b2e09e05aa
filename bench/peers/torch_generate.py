"""Times a decoder that writes tokens one by one with a cache: the models of `remat-bench generate`, greedily, with random weights or, for a Llama, those of
a folder of Hugging Face.

The loop is written out, with PyTorch's fused attention over the part of the cache that is filled, as `transformers` does it without what it does beside.
"""

import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import common
import torch_common

TEXTS = 3


def arguments():
    sizes = dict(layers=12, width=768, heads=12, hidden=3072, vocabulary=50257, prompt=64, tokens=64)
    parser = common.parser(__doc__, sizes)
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--from", dest="folder", help="a folder of a Llama, whose sizes are those there")
    a = parser.parse_args()
    a.key_heads = max(a.heads // 3, 1) if a.model == "llama" else a.heads
    if a.folder:
        config = json.loads((Path(a.folder) / "config.json").read_text())
        names = dict(layers="num_hidden_layers", width="hidden_size", heads="num_attention_heads", hidden="intermediate_size",
                     vocabulary="vocab_size", key_heads="num_key_value_heads")
        vars(a).update({own: config[name] for own, name in names.items()}, model="llama")
    return a


class Decoder:
    def __init__(self, a):
        self.a, self.size = a, a.width // a.heads
        self.is_llama, self.dtype, self.key_heads = a.model == "llama", torch_common.DTYPES[a.dtype], a.key_heads
        own = self.key_heads * self.size
        self.embed = self.normal(a.vocabulary, a.width)
        self.head = self.normal(a.vocabulary, a.width) if self.is_llama else self.embed
        self.positions = self.normal(a.prompt + a.tokens, a.width)
        self.norm = self.scale()
        self.blocks = [dict(
            norm1=self.scale(), norm2=self.scale(),
            qkv=self.linear(a.width, a.width + 2 * own), out=self.linear(a.width, a.width),
            up=self.linear(a.width, (2 if self.is_llama else 1) * a.hidden), down=self.linear(a.hidden, a.width),
        ) for _ in range(a.layers)]
        angles = torch.arange(a.prompt + a.tokens)[:, None] * 10000.0 ** (-torch.arange(self.size // 2) / (self.size // 2))
        self.cos, self.sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        if a.folder:
            self.load(common.read_safetensors(Path(a.folder) / "model.safetensors"))

    def load(self, weights):
        """The weights of a Llama, of which those that read the same are joined."""
        of = lambda *names: torch.cat([torch.from_numpy(weights[name + ".weight"].copy()) for name in names]).to(self.dtype)
        self.embed, self.head, self.norm = of("model.embed_tokens"), of("lm_head"), (of("model.norm"), None)
        for i, block in enumerate(self.blocks):
            own = lambda *names: (of(*(f"model.layers.{i}.{name}" for name in names)), None)
            block.update(
                norm1=own("input_layernorm"), norm2=own("post_attention_layernorm"),
                qkv=own(*(f"self_attn.{x}_proj" for x in "qkv")), out=own("self_attn.o_proj"),
                up=own("mlp.gate_proj", "mlp.up_proj"), down=own("mlp.down_proj"),
            )

    def normal(self, *shape):
        return (torch.randn(*shape) * 0.02).to(self.dtype)

    def linear(self, inputs, outputs):
        return self.normal(outputs, inputs), None if self.is_llama else torch.zeros(outputs, dtype=self.dtype)

    def scale(self):
        ones = torch.ones(self.a.width, dtype=self.dtype)
        return ones, None if self.is_llama else torch.zeros(self.a.width, dtype=self.dtype)

    def normed(self, x, scale):
        weight, bias = scale
        return F.rms_norm(x, (x.shape[-1],), weight, 1e-6) if self.is_llama else F.layer_norm(x, (x.shape[-1],), weight, bias)

    def rotated(self, x, at):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[at], self.sin[at]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def cache(self):
        shape = (self.a.layers, 1, self.key_heads, self.a.prompt + self.a.tokens, self.size)
        return torch.zeros(2, *shape, dtype=self.dtype)

    def next(self, tokens, cache, position):
        a, n, own = self.a, tokens.numel(), self.key_heads * self.size
        at = slice(position, position + n)
        x = self.embed[tokens][None] if self.is_llama else (self.embed[tokens] + self.positions[at])[None]
        for i, block in enumerate(self.blocks):
            qkv = F.linear(self.normed(x, block["norm1"]), *block["qkv"])
            q, k, v = (y.view(1, n, -1, self.size).transpose(1, 2) for y in qkv.split([a.width, own, own], -1))
            if self.is_llama:
                q, k = self.rotated(q, at), self.rotated(k, at)
            cache[0, i, :, :, at], cache[1, i, :, :, at] = k, v
            keys, values = cache[0, i, :, :, :at.stop], cache[1, i, :, :, :at.stop]
            mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=n > 1, enable_gqa=self.is_llama)
            x = x + F.linear(mixed.transpose(1, 2).reshape(1, n, a.width), *block["out"])
            hidden = F.linear(self.normed(x, block["norm2"]), *block["up"])
            if self.is_llama:
                gate, up = hidden.chunk(2, -1)
                hidden = F.silu(gate) * up
            else:
                hidden = F.gelu(hidden, approximate="tanh")
            x = x + F.linear(hidden, *block["down"])
        return F.linear(self.normed(x[:, -1], self.norm), self.head).argmax(-1)


def main():
    a = arguments()
    torch_common.begin(a)
    torch.set_grad_enabled(False)
    model = Decoder(a)
    prompts, times = [], []
    for number in range(TEXTS + 1):
        text = []
        cache, position, tokens = model.cache(), 0, torch.arange(a.prompt) * 7919 % a.vocabulary
        for i in range(a.tokens + 1):
            start = time.perf_counter()
            count = tokens.numel()
            tokens = model.next(tokens, cache, position)
            text.append(tokens.item())
            position += count
            # The first text warms up.
            if number > 0:
                (times if i else prompts).append(time.perf_counter() - start)
    prompt_s, token_s = statistics.median(prompts), statistics.median(times)
    version = torch.__version__.split("+")[0]
    print(json.dumps(dict(framework="torch " + version, model=a.model, dtype=a.dtype, prompt=a.prompt, tokens=a.tokens,
                          prompt_s=prompt_s, token_s=token_s, tokens_per_s=1 / token_s, text=text)))


if __name__ == "__main__":
    main()
