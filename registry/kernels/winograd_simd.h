#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/panel.h"
#include "registry/kernels/simd.h"

// The loops of Winograd's convolutions (winograd.h), which work on tiles: squares of the output, and the larger squares
// of the input that these need.

namespace trainrun::kernels {

/// Outputs of a tile by taps of the filter, in each dimension; strided: of stride 2, otherwise of 1; padded: of images that
/// are one tile, with padding that keeps their size.
enum class WinogradTile {
  kOutputs2Taps3,
  kOutputs4Taps3,
  kOutputs3Taps5,
  kStrided2Taps3,
  kStrided4Taps3,
  kPadded2Taps3
};

constexpr int64_t kWinogradGroup = 64;  // filters whose gradients are
constexpr int64_t kMostWinogradChannels = 4096;

/// Sizes of a convolution. x is [images, in_height, in_width, channels], y [images, out_height, out_width, filters]; the
/// weights are [filters, channels, taps, taps] in float32.
struct WinogradShape {
  WinogradTile tile;
  bool is_bfloat16;  // x, y and their gradients; otherwise they are float32
  int64_t images, channels, filters;
  int64_t in_height, in_width, out_height, out_width;
  int64_t padding_height, padding_width;
  int64_t tiles_high, tiles_wide;  // in an image
};

/// Tiles that lie in rows of memory: those from `first` on, `count` of them.
struct WinogradTiles {
  int64_t first, count;
};

/// Numbers of tiles at their points: at[point][channel / row][tile][channel % row].
struct WinogradPoints {
  float* at;
  int64_t row;        // channels that lie together
  int64_t row_step;   // from tile to tile
  int64_t part_step;  // from one row's worth of channels to the next
  int64_t point_step;
};

// What is expanded: the input, for forward and for the gradient of the filters; the output's gradient, for that of the
// input and for that of the filters.
enum class WinogradExpansion { kInput, kGradientForInput, kGradientForFilters };

/// Expands `channels` channels from `first_channel` on; those up to the next multiple of
/// 16, or of 32 if to.row is one, are zero.
TRAINRUN_ON_EACH_PATH(void winograd_expand(const WinogradShape& shape, WinogradExpansion what, const void* image,
                                           WinogradTiles tiles, int64_t first_channel, int64_t channels,
                                           const WinogradPoints& to))

/// u[point][depth][panel] for the outputs of panel number `panel`: filters, or channels where it is `backward`. The depth
/// is that of the other ones, up to a multiple of 16.
TRAINRUN_ON_EACH_PATH(void winograd_expand_filters(const WinogradShape& shape, bool backward, const float* weights,
                                                   int64_t panel, float* u))

/// y, or where it is `backward` the gradient of x, for the outputs of panel number `panel` and some tiles of whole
/// images, or, forward, of any. `v` are the expanded tiles, of depth `depth`, `sums` memory for
/// [points][tiles.count][panel] floats at `sums_step` from point to point. `bias` may be null.
TRAINRUN_ON_EACH_PATH(void winograd_outputs(const WinogradShape& shape, bool backward, const WinogradPoints& v,
                                            int64_t depth, const float* u, const float* bias, WinogradTiles tiles,
                                            int64_t panel, float* sums, int64_t sums_step, void* to))

/// Adds to `sums` [point][group][panel] what some tiles give to the gradients of a group of filters and a panel of
/// channels; `add` is false for the first of them. `z` are the filters' tiles and `v` the channels', of that group and
/// of that panel.
TRAINRUN_ON_EACH_PATH(void winograd_filter_sums(const WinogradShape& shape, const WinogradPoints& z,
                                                const WinogradPoints& v, int64_t count, int64_t filters, bool add,
                                                float* sums))

/// The gradients themselves of `filters` filters from `first_filter` on and of a panel of channels from `first_channel`
/// on, out of such sums, into [filters, channels, taps, taps].
TRAINRUN_ON_EACH_PATH(void winograd_filter_gradients(const WinogradShape& shape, const float* sums,
                                                     int64_t first_filter, int64_t filters, int64_t first_channel,
                                                     float* to))

}  // namespace trainrun::kernels
