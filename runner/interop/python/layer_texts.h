#pragma once

// Classes of layers that torch.nn does not have, as a program holds them.

namespace trainrun::python {

inline constexpr const char* kGaussianSample = R"(class GaussianSample(nn.Module):
    """Draws from normal distributions while training, and gives their means in evaluation."""

    def forward(self, mean, log_variance):
        if not self.training:
            return mean
        return mean + (log_variance * 0.5).exp() * torch.randn_like(mean)
)";

inline constexpr const char* kLearnedPositions = R"(class PositionalEncoding(nn.Module):
    """Adds a learned vector for each position."""

    def __init__(self, max_len, d_model, dropout=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return self.dropout(x + self.weight[: x.size(TIME)]AXES)
)";

inline constexpr const char* kSinusoidalPositions = R"(class PositionalEncoding(nn.Module):
    """Adds sines and cosines of the position, of wavelengths from 2 pi to 10000 * 2 pi."""

    def __init__(self, max_len, d_model, dropout=0.0):
        super().__init__()
        rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.double) * (-math.log(10000.0) / d_model))
        angles = torch.arange(max_len, dtype=torch.double).unsqueeze(1) * rates
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d_model]
        self.register_buffer("table", table.float(), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(TIME)]AXES)
)";

inline constexpr const char* kLayerNorm2d = R"(class LayerNorm2d(nn.LayerNorm):
    """Normalizes the channels of images [N, C, H, W]."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
)";

inline constexpr const char* kTransposedLinear = R"(class TransposedLinear(nn.Module):
    """A Linear whose weight is [in, out]."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return x @ self.weight + self.bias
)";

}  // namespace trainrun::python
