"""A step of ResNet-50 in PyTorch on the CPU: loss and gradient with respect to all weights.

The stride is in the middle convolution of a block. Batch norm takes the statistics of the batch and keeps no averages.
"""

import torch
from torch import nn
from torch.nn import functional as F

from torch_common import DTYPES, begin, format_of, forward_flops, measure_and_report, under, vision_parser


def unit(inputs, outputs, window, stride=1):
    conv = nn.Conv2d(inputs, outputs, window, stride, padding=window // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, track_running_stats=False))


class Block(nn.Module):
    def __init__(self, inputs, features, stride):
        super().__init__()
        outputs = 4 * features
        self.narrow = unit(inputs, features, 1)
        self.middle = unit(features, features, 3, stride)
        self.widen = unit(features, outputs, 1)
        changes = stride != 1 or inputs != outputs
        self.shortcut = unit(inputs, outputs, 1, stride) if changes else nn.Identity()

    def forward(self, x):
        y = F.relu(self.middle(F.relu(self.narrow(x))))
        return F.relu(self.widen(y) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = unit(3, 64, 7, 2)
        self.blocks = nn.ModuleList()
        inputs = 64
        for stage, count in enumerate([3, 4, 6, 3]):
            for i in range(count):
                self.blocks.append(Block(inputs, 64 << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = 4 * (64 << stage)
        self.head = nn.Linear(inputs, a.classes)

    def forward(self, images, classes):
        x = F.max_pool2d(F.relu(self.stem(images)), 3, 2, padding=1)
        for block in self.blocks:
            x = under(a.policy, block, x)
        return F.cross_entropy(self.head(x.mean((2, 3))), classes)


a = vision_parser(__doc__, dict(image=224, batch=8, classes=1000)).parse_args()
begin(a)
model = ResNet().to(DTYPES[a.dtype], memory_format=format_of(a))
images = torch.randn(a.batch, 3, a.image, a.image).to(DTYPES[a.dtype], memory_format=format_of(a))
classes = torch.randint(a.classes, (a.batch,))
loss = lambda: model(images, classes)
measure_and_report(a, model, loss, lambda: 3 * forward_flops(loss), work="resnet")
