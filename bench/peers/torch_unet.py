"""A step of a U-Net in PyTorch on the CPU: loss and gradient with respect to all weights.

Two convolutions with group norm and `silu` at each level, down by max pooling, up by repeating each pixel, followed by a
convolution. The loss is the mean squared distance from noise.
"""

import torch
from torch import nn
from torch.nn import functional as F

import torch_budget
from torch_common import DTYPES, begin, format_of, forward_flops, measure_and_report, under, vision_parser


def unit(inputs, outputs):
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(8, outputs), nn.SiLU())


def level(inputs, outputs):
    return nn.Sequential(unit(inputs, outputs), unit(outputs, outputs))


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.level = level(2 * outputs, outputs)

    def forward(self, below, beside):
        enlarged = self.conv(F.interpolate(below, scale_factor=2, mode="nearest"))
        return self.level(torch.cat([beside, enlarged], 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        features = [a.width << i for i in range(a.levels)]
        self.down = nn.ModuleList(level(*pair) for pair in zip([3, *features], features))
        self.up = nn.ModuleList(Up(*pair) for pair in zip(features[:0:-1], features[-2::-1]))
        self.out = nn.Conv2d(a.width, 3, 1)

    def forward(self, noisy, noise):
        x, left = noisy, []
        for i, part in enumerate(self.down):
            if i > 0:
                left.append(x)
                x = F.max_pool2d(x, 2)
            x = under(a.policy, part, x)
        for part in self.up:
            x = under(a.policy, part, x, left.pop())
        return F.mse_loss(self.out(x), noise)


options = vision_parser(__doc__, dict(image=128, batch=4, width=32, levels=4))
torch_budget.add_argument(options)
a = options.parse_args()
begin(a)
model = UNet().to(DTYPES[a.dtype], memory_format=format_of(a))
noisy, noise = (torch.randn(a.batch, 3, a.image, a.image).to(DTYPES[a.dtype], memory_format=format_of(a))
                for _ in range(2))
loss = lambda: model(noisy, noise)
if a.budgets:
    torch_budget.measure_and_report(a, model, lambda program: program(noisy, noise), work="unet")
else:
    measure_and_report(a, model, loss, lambda: 3 * forward_flops(loss), work="unet")
