#include "registry/kernels/winograd_simd.h"

#include "registry/kernels/small_products.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/toom_cook.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

/// `Matrices` of both passes, and those of the gradient of the filters: taps x taps sums of outputs x outputs.
template <int kOutputs, int kTaps, int kStride, class Matrices, class MatricesOfFilters>
struct TileOf {
  static constexpr int outputs = kOutputs;
  static constexpr int taps = kTaps;
  static constexpr int stride = kStride;
  using Forward = Matrices;
  using OfFilters = MatricesOfFilters;
  static constexpr int side = Forward::side;
  static constexpr int points = side * side;
  static constexpr int inputs = Forward::input.cols;
};

template <int kOutputs, int kTaps>
struct Tile : TileOf<kOutputs, kTaps, 1, ToomCook<kOutputs, kTaps>, ToomCook<kTaps, kOutputs>> {};
template <int kOutputs>
struct StridedTile : TileOf<kOutputs, 3, 2, StridedToomCook<kOutputs>, typename StridedToomCook<kOutputs>::OfFilters> {
};
struct PaddedTile : TileOf<2, 3, 1, PaddedToomCook, PaddedToomCook::OfFilters> {};

template <class Call>
inline void with_tile(WinogradTile tile, const Call& call) {
  if (tile == WinogradTile::kOutputs2Taps3) call(Tile<2, 3>{});
  if (tile == WinogradTile::kOutputs4Taps3) call(Tile<4, 3>{});
  if (tile == WinogradTile::kOutputs3Taps5) call(Tile<3, 5>{});
  if (tile == WinogradTile::kStrided2Taps3) call(StridedTile<2>{});
  if (tile == WinogradTile::kStrided4Taps3) call(StridedTile<4>{});
  if (tile == WinogradTile::kPadded2Taps3) call(PaddedTile{});
}

// --- transforms, of kLanes channels at a time

/// Row kRow of the matrix times x, from column kCol on, without the multiplications by 0, 1 and -1.
template <const auto& kMatrix, int kRow, int kCol = 0>
TRAINRUN_INLINE inline Floats dot(const Floats* x) {
  constexpr float factor = kMatrix.at[kRow][kCol];
  constexpr bool is_last = [] {
    for (int j = kCol + 1; j < kMatrix.cols; ++j) {
      if (kMatrix.at[kRow][j] != 0) return false;
    }
    return true;
  }();
  if constexpr (is_last) {
    return factor == 1 ? x[kCol] : x[kCol] * all_of(factor);
  } else if constexpr (factor == 0) {
    return dot<kMatrix, kRow, kCol + 1>(x);
  } else if constexpr (factor == 1) {
    return dot<kMatrix, kRow, kCol + 1>(x) + x[kCol];
  } else if constexpr (factor == -1) {
    return dot<kMatrix, kRow, kCol + 1>(x) - x[kCol];
  } else {
    return multiplied_sum(x[kCol], all_of(factor), dot<kMatrix, kRow, kCol + 1>(x));
  }
}

template <const auto& kMatrix, int kCount>
TRAINRUN_INLINE inline void sums_and_differences(Floats* x) {
  unrolled<kCount>([&](auto i) TRAINRUN_INLINE {
    if constexpr (kMatrix.paired[i]) {
      const Floats a = x[i];
      const Floats b = x[i + 1];
      x[i] = a + b;
      x[i + 1] = a - b;
    }
  });
}

template <const auto& kMatrix>
TRAINRUN_INLINE inline void transform_1d(Floats* in, Floats* out) {
  if constexpr (!kMatrix.expands) sums_and_differences<kMatrix, kMatrix.cols>(in);
  unrolled<kMatrix.rows>([&](auto i) TRAINRUN_INLINE { out[i] = dot<kMatrix, i>(in); });
  if constexpr (kMatrix.expands) sums_and_differences<kMatrix, kMatrix.rows>(out);
}

/// Gives to give(i, j, …) the matrix times x times its transpose, where x(i, j) is what `take` gives.
template <const auto& kMatrix, class Take, class Give>
TRAINRUN_INLINE inline void transform(const Take& take, const Give& give) {
  Floats half[kMatrix.rows][kMatrix.cols];
  unrolled<kMatrix.cols>([&](auto j) TRAINRUN_INLINE {
    Floats in[kMatrix.cols];
    Floats out[kMatrix.rows];
    unrolled<kMatrix.cols>([&](auto i) TRAINRUN_INLINE { in[i] = take(i, j); });
    transform_1d<kMatrix>(in, out);
    unrolled<kMatrix.rows>([&](auto i) TRAINRUN_INLINE { half[i][j] = out[i]; });
  });
  unrolled<kMatrix.rows>([&](auto i) TRAINRUN_INLINE {
    Floats out[kMatrix.rows];
    transform_1d<kMatrix>(half[i], out);
    unrolled<kMatrix.rows>([&](auto j) TRAINRUN_INLINE { give(i, j, out[j]); });
  });
}

// --- tiles in images

constexpr int64_t padded(int64_t channels) { return (channels + 15) / 16 * 16; }

/// Images [n][height][width][channels] that squares are cut out of which lie `step` apart, the first at -padding.
struct Grid {
  int64_t height, width, channels;
  int64_t high, wide, step;
  int64_t padding_height, padding_width;

  /// The addresses of the kSize x kSize pixels of a tile; `outside` stands for those beyond the image.
  template <int kSize, class T>
  void addresses(T* images, int64_t tile, T* outside, T** out) const {
    const int64_t n = tile / (high * wide);
    const int64_t place = tile % (high * wide);
    const int64_t top = place / wide * step - padding_height;
    const int64_t left = place % wide * step - padding_width;
    T* row = images + ((n * height + top) * width + left) * channels;
    for (int64_t y = top; y < top + kSize; ++y, row += width * channels) {
      const bool is_inside = y >= 0 && y < height;
      T* at = row;
      for (int64_t x = left; x < left + kSize; ++x, at += channels) {
        *out++ = is_inside && x >= 0 && x < width ? at : outside;
      }
    }
  }
};

template <class OfTile>
Grid input_grid(const WinogradShape& s) {
  constexpr int64_t kStep = OfTile::outputs * OfTile::stride;
  Grid grid{s.in_height, s.in_width, s.channels, s.tiles_high, s.tiles_wide, kStep, s.padding_height, s.padding_width};
  if (OfTile::inputs < OfTile::side) grid.padding_height = grid.padding_width = 0;  // no input of a tile is padding
  return grid;
}
template <class OfTile>
Grid output_grid(const WinogradShape& s) {
  return {s.out_height, s.out_width, s.filters, s.tiles_high, s.tiles_wide, OfTile::outputs, 0, 0};
}

/// Zeros in place of the channels of a pixel outside of the image.
template <class T>
const T* nothing() {
  alignas(64) static const T zeros[kMostWinogradChannels + 16] = {};
  return zeros;
}

/// The first `count` numbers of each of kPixels pixels, and zeros after them, so that all can be read.
template <int kPixels, class T>
struct PartOfPixels {
  alignas(64) T numbers[kPixels][kLanes];
  T* pixels[kPixels];

  void take(const T* const* from, int64_t first, int64_t count) {
    for (int k = 0; k < kPixels; ++k) {
      put<true>(numbers[k], get<false>(from[k] + first, count), kLanes);
      pixels[k] = numbers[k];
    }
  }
  void give(T* const* to, int64_t first, int64_t count) const {
    for (int k = 0; k < kPixels; ++k) put<false>(to[k] + first, get<true>(numbers[k], kLanes), count);
  }
};

template <const auto& kMatrix, class T>
void expand(const T* images, const Grid& grid, WinogradTiles tiles, int64_t channels, const WinogradPoints& to) {
  constexpr int kPixels = kMatrix.cols * kMatrix.cols;
  const T* pixels[kPixels];
  PartOfPixels<kPixels, T> part;
  const int64_t together = to.row % kPanel == 0 ? kPanel : 16;
  const int64_t end = (channels + together - 1) / together * together;
  for (int64_t t = 0; t < tiles.count; ++t) {
    grid.addresses<kMatrix.cols>(images, tiles.first + t, nothing<T>(), pixels);
    for (int64_t c = 0; c < end; c += kLanes) {
      const bool is_whole = c + kLanes <= channels;
      if (!is_whole) part.take(pixels, c, channels - c);
      const T* const* const from = is_whole ? pixels : part.pixels;
      const int64_t first = is_whole ? c : 0;
      float* const at = to.at + c / to.row * to.part_step + t * to.row_step + c % to.row;
      transform<kMatrix>(
          [&](auto i, auto j) TRAINRUN_INLINE { return get<true>(from[i * kMatrix.cols + j] + first, kLanes); },
          [&](auto i, auto j, Floats x) TRAINRUN_INLINE { store_all(at + (i * kMatrix.rows + j) * to.point_step, x); });
    }
  }
}

/// Where the outputs of a pass lie, and how many there are: filters, or channels backward.
template <class OfTile, bool kBackward, class T>
void put_outputs(const WinogradShape& s, const float* sums, int64_t sums_step, const float* bias, WinogradTiles tiles,
                 int64_t first_output, T* to) {
  constexpr int kSize = kBackward ? OfTile::inputs : OfTile::outputs, kPixels = kSize * kSize;
  const Grid grid = kBackward ? input_grid<OfTile>(s) : output_grid<OfTile>(s);
  const int64_t width = grid.channels - first_output < kPanel ? grid.channels - first_output : kPanel;
  const int64_t tiles_of_image = s.tiles_high * s.tiles_wide;
  const int64_t pixels_of_image = grid.height * grid.width;
  T outside[kPanel] = {};
  T* pixels[kPixels];
  PartOfPixels<kPixels, T> part;
  T* const images = to + first_output;
  for (int64_t t = 0; t < tiles.count; ++t) {
    const int64_t tile = tiles.first + t;
    if (kBackward && tile % tiles_of_image == 0) {
      T* pixel = images + tile / tiles_of_image * pixels_of_image * grid.channels;
      for (int64_t i = 0; i < pixels_of_image; ++i, pixel += grid.channels) {
        __builtin_memset(pixel, 0, static_cast<std::size_t>(width) * sizeof(T));
      }
    }
    grid.addresses<kSize>(images, tile, static_cast<T*>(outside), pixels);
    for (int64_t lane = 0; lane < width; lane += kLanes) {
      const bool is_whole = lane + kLanes <= width;
      if (!is_whole) part.take(pixels, lane, width - lane);
      T* const* const places = is_whole ? pixels : part.pixels;
      const int64_t first = is_whole ? lane : 0;
      const float* const from = sums + t * kPanel + lane;
      const Floats added = bias ? load(bias + first_output + lane, width - lane) : Floats{};
      const auto take = [&](auto i, auto j)
                            TRAINRUN_INLINE { return load_all(from + (i * OfTile::side + j) * sums_step); };
      const auto give = [&](auto i, auto j, Floats x) TRAINRUN_INLINE {
        T* const at = places[i * kSize + j] + first;
        put<true>(at, x + (kBackward ? get<true>(at, kLanes) : added), kLanes);
      };
      if constexpr (kBackward) {
        transform<OfTile::Forward::input_gradient>(take, give);
      } else {
        transform<OfTile::Forward::output>(take, give);
      }
      if (!is_whole) part.give(pixels, lane, width - lane);
    }
  }
}

/// The first `count` numbers of each of `rows` rows, `step` apart, as to[number][row] for `all` numbers of kLanes rows;
/// zeros where there are none.
TRAINRUN_INLINE inline void put_columns(const float* from, int64_t step, int64_t rows, int64_t count, int64_t all,
                                        float* to) {
  Floats square[kLanes];
  for (int64_t first = 0; first < all; first += kLanes) {
    for (int64_t row = 0; row < kLanes; ++row) {
      square[row] = row < rows ? load(from + row * step + first, count - first) : Floats{};
    }
    transpose(square);
    for (int64_t i = 0; i < lesser(kLanes, all - first); ++i) store_all(to + (first + i) * kLanes, square[i]);
  }
}

/// taps[depth][tap][lane] of kLanes outputs and 16 inputs, zero where there are none.
template <int kTaps2>
void gather_taps(const WinogradShape& s, bool backward, const float* weights, int64_t output, int64_t input,
                 float* taps) {
  if (!backward) {  // a filter's numbers for 16 channels follow each other, as they do in `taps`
    const int64_t step = s.channels * kTaps2, there = lesser(s.channels - input, 16) * kTaps2;
    put_columns(weights + output * step + input * kTaps2, step, s.filters - output, there, int64_t{16} * kTaps2, taps);
    return;
  }
  for (int64_t d = 0; d < 16; ++d, taps += int64_t{kTaps2} * kLanes) {
    const float* const filter = weights + ((input + d) * s.channels + output) * kTaps2;
    put_columns(filter, kTaps2, input + d < s.filters ? s.channels - output : 0, kTaps2, kTaps2, taps);
  }
}

}  // namespace

void winograd_expand(const WinogradShape& shape, WinogradExpansion what, const void* image, WinogradTiles tiles,
                     int64_t first_channel, int64_t channels, const WinogradPoints& to) {
  with_tile(shape.tile, [&](auto tile) {
    using OfTile = decltype(tile);
    with_type(shape.is_bfloat16, [&](auto type) {
      const auto* const from = static_cast<const decltype(type)*>(image) + first_channel;
      if (what == WinogradExpansion::kInput) {
        expand<OfTile::Forward::input>(from, input_grid<OfTile>(shape), tiles, channels, to);
      } else if (what == WinogradExpansion::kGradientForInput) {
        expand<OfTile::Forward::output_gradient>(from, output_grid<OfTile>(shape), tiles, channels, to);
      } else {
        expand<OfTile::OfFilters::filter>(from, output_grid<OfTile>(shape), tiles, channels, to);
      }
    });
  });
}

void winograd_expand_filters(const WinogradShape& shape, bool backward, const float* weights, int64_t panel, float* u) {
  with_tile(shape.tile, [&](auto tile) {
    using OfTile = decltype(tile);
    constexpr int kTaps = OfTile::taps;
    alignas(64) float taps[16 * kTaps * kTaps * kLanes];
    const int64_t depth = padded(backward ? shape.filters : shape.channels);
    for (int64_t d = 0; d < depth; d += 16) {
      for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
        gather_taps<kTaps * kTaps>(shape, backward, weights, panel * kPanel + lane, d, taps);
        for (int64_t i = 0; i < 16; ++i) {
          float* const to = u + (d + i) * kPanel + lane;
          transform<OfTile::Forward::filter>(
              [&](auto y, auto x) TRAINRUN_INLINE { return load_all(taps + ((i * kTaps + y) * kTaps + x) * kLanes); },
              [&](auto y, auto x, Floats f)
                  TRAINRUN_INLINE { store_all(to + (y * OfTile::side + x) * depth * kPanel, f); });
        }
      }
    }
  });
}

void winograd_outputs(const WinogradShape& shape, bool backward, const WinogradPoints& v, int64_t depth, const float* u,
                      const float* bias, WinogradTiles tiles, int64_t panel, float* sums, int64_t sums_step, void* to) {
  with_tile(shape.tile, [&](auto tile) {
    using OfTile = decltype(tile);
    for (int p = 0; p < OfTile::points; ++p) {
      product_of_panel(tiles.count, {v.at + p * v.point_step, v.row_step, 1}, u + p * depth * kPanel, kPanel, depth,
                       sums + p * sums_step, kPanel, false);
    }
    with_type(shape.is_bfloat16, [&](auto type) {
      auto* const out = static_cast<decltype(type)*>(to);
      if (backward) {
        put_outputs<OfTile, true>(shape, sums, sums_step, bias, tiles, panel * kPanel, out);
      } else {
        put_outputs<OfTile, false>(shape, sums, sums_step, bias, tiles, panel * kPanel, out);
      }
    });
  });
}

void winograd_filter_sums(const WinogradShape& shape, const WinogradPoints& z, const WinogradPoints& v, int64_t count,
                          int64_t filters, bool add, float* sums) {
  with_tile(shape.tile, [&](auto tile) {
    for (int p = 0; p < decltype(tile)::points; ++p) {
      product_of_panel(filters, {z.at + p * z.point_step, 1, z.row_step}, v.at + p * v.point_step, kPanel, count,
                       sums + p * kWinogradGroup * kPanel, kPanel, add);
    }
  });
}

void winograd_filter_gradients(const WinogradShape& shape, const float* sums, int64_t first_filter, int64_t filters,
                               int64_t first_channel, float* to) {
  with_tile(shape.tile, [&](auto tile) {
    using OfTile = decltype(tile);
    constexpr int kTaps = OfTile::taps;
    const int64_t left = shape.channels - first_channel;
    const int64_t channels = left < kPanel ? left : kPanel;
    alignas(64) float gradient[kTaps * kTaps][kLanes];
    for (int64_t f = 0; f < filters; ++f) {
      for (int64_t c = 0; c < channels; c += kLanes) {
        const float* const from = sums + f * kPanel + c;
        transform<OfTile::OfFilters::output>(
            [&](auto i, auto j)
                TRAINRUN_INLINE { return load_all(from + (i * OfTile::side + j) * kWinogradGroup * kPanel); },
            [&](auto i, auto j, Floats g) TRAINRUN_INLINE { store_all(gradient[i * kTaps + j], g); });
        float* at = to + ((first_filter + f) * shape.channels + first_channel + c) * kTaps * kTaps;
        for (int64_t lane = 0; lane < lanes_of(channels - c); ++lane) {
          for (int t = 0; t < kTaps * kTaps; ++t) *at++ = gradient[t][lane];
        }
      }
    }
  });
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
