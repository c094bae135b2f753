#include "registry/kernels/winograd.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "registry/kernels/parts.h"
#include "registry/language/error.h"

// Who computes which tiles, and in which memory. The tiles of a block are expanded, multiplied, panel by panel, and
// contracted while they lie in the L2 cache; the filters stream from the L3 cache once a block.

namespace trainrun::kernels {
namespace {

constexpr int64_t kFewTiles = 128;                   // at most as many are one block, which threads share
constexpr int64_t kLanesPadding = 16;                // keeps rows off each other's cache sets
constexpr int64_t kSumsInCache = int64_t{10} << 20;  // bytes of sums of filters' gradients, in the L3 cache
constexpr int64_t kSumsOfEach = int64_t{3} << 20;    // bytes of them that each thread may have for itself

struct TileSizes {
  int64_t outputs, taps, stride;
  bool is_padded = false;
  /// Of its points, and of the input that it reads unless it is padded.
  int64_t side() const { return is_padded ? outputs + 1 : stride * (outputs - 1) + taps; }
};

TileSizes sizes_of(WinogradTile tile) {
  switch (tile) {
    case WinogradTile::kOutputs2Taps3:
      return {2, 3, 1};
    case WinogradTile::kOutputs4Taps3:
      return {4, 3, 1};
    case WinogradTile::kOutputs3Taps5:
      return {3, 5, 1};
    case WinogradTile::kStrided2Taps3:
      return {2, 3, 2};
    case WinogradTile::kStrided4Taps3:
      return {4, 3, 2};
    case WinogradTile::kPadded2Taps3:
      return {2, 3, 1, true};
  }
  throw Error("no such tile");
}
int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t whole_lanes(int64_t channels) { return divided_up(channels, 16) * 16; }

/// Tiles that are expanded at a time: as many as pay for reading the filters, or the sums, once a block.
int64_t block_of(int64_t tiles, int64_t width) { return std::min(tiles, std::max<int64_t>(24, width / 4)); }

at::Tensor floats(int64_t count) { return at::empty({count}, at::kFloat); }

}  // namespace

double winograd_work(WinogradTile tile, int64_t out_height, int64_t out_width) {
  const TileSizes of = sizes_of(tile);
  const int64_t tiles = divided_up(out_height, of.outputs) * divided_up(out_width, of.outputs);
  return static_cast<double>(tiles * of.side() * of.side()) /
         static_cast<double>(out_height * out_width * of.taps * of.taps);
}

std::optional<WinogradTile> best_winograd_tile(int64_t taps, int64_t stride, bool keeps_size, int64_t out_height,
                                               int64_t out_width) {
  if (taps == 5 && stride == 1) return WinogradTile::kOutputs3Taps5;
  if (taps != 3 || stride < 1 || stride > 2) return std::nullopt;
  if (stride == 1 && keeps_size && out_height == 2 && out_width == 2) return WinogradTile::kPadded2Taps3;
  const WinogradTile small = stride == 1 ? WinogradTile::kOutputs2Taps3 : WinogradTile::kStrided2Taps3;
  const WinogradTile large = stride == 1 ? WinogradTile::kOutputs4Taps3 : WinogradTile::kStrided4Taps3;
  const auto work = [&](WinogradTile tile) { return winograd_work(tile, out_height, out_width); };
  return work(small) < work(large) ? small : large;
}

Winograd::Winograd(at::IntArrayRef x, at::IntArrayRef weight, int64_t stride, std::array<int64_t, 2> padding,
                   bool is_bfloat16, std::optional<WinogradTile> tile, CpuPath path)
    : path_(path) {
  const int64_t taps = weight[2];
  const auto outputs = [&](size_t dim) { return (x[dim + 2] + 2 * padding[dim] - taps) / stride + 1; };
  const int64_t out_height = outputs(0), out_width = outputs(1);
  const bool keeps_size = out_height == x[2] && out_width == x[3];
  if (!tile) tile = best_winograd_tile(taps, stride, keeps_size, out_height, out_width);
  if (!tile || weight[3] != taps) throw Error("no tile fits this convolution");
  const TileSizes of = sizes_of(*tile);
  const bool is_tile = keeps_size && out_height == of.outputs && out_width == of.outputs;
  if (of.taps != taps || of.stride != stride || (of.is_padded && !is_tile)) {
    throw Error("the tile does not fit this convolution");
  }
  shape_ = {*tile,
            is_bfloat16,
            x[0],
            x[1],
            weight[0],
            x[2],
            x[3],
            out_height,
            out_width,
            padding[0],
            padding[1],
            divided_up(out_height, of.outputs),
            divided_up(out_width, of.outputs)};
}

int64_t Winograd::points() const { return sizes_of(shape_.tile).side() * sizes_of(shape_.tile).side(); }

/// Memory for the expanded tiles of a block.
class Winograd::Points {
 public:
  /// `row`: channels that lie together, for each tile.
  static int64_t floats(int64_t points, int64_t tiles, int64_t channels, int64_t row, int64_t padding) {
    return points * (divided_up(channels, row) * tiles * (row + padding) + kLanesPadding);
  }
  static WinogradPoints at(float* memory, int64_t tiles, int64_t channels, int64_t row, int64_t padding) {
    const int64_t step = row + padding;
    return {memory, row, step, tiles * step, divided_up(channels, row) * tiles * step + kLanesPadding};
  }
};

at::Tensor Winograd::empty_like(const at::Tensor& of, std::array<int64_t, 4> sizes) const {
  return at::empty(sizes, of.options().memory_format(at::MemoryFormat::ChannelsLast));
}

at::Tensor Winograd::forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
  const at::Tensor y = empty_like(x, {shape_.images, shape_.filters, shape_.out_height, shape_.out_width});
  convolve(false, x, weight, bias.defined() ? bias.const_data_ptr<float>() : nullptr, y);
  return y;
}

at::Tensor Winograd::input_gradient(const at::Tensor& grad_y, const at::Tensor& weight) const {
  const at::Tensor grad_x = empty_like(grad_y, {shape_.images, shape_.channels, shape_.in_height, shape_.in_width});
  convolve(true, grad_y, weight, nullptr, grad_x);
  return grad_x;
}

void Winograd::convolve(bool backward, const at::Tensor& from, const at::Tensor& weight, const float* bias,
                        const at::Tensor& to) const {
  // Backward, tiles overlap: a thread has whole images.
  const bool is_few = tiles() <= kFewTiles || (backward && shape_.images < at::get_num_threads());
  const auto compute = is_few ? &Winograd::convolve_few : &Winograd::convolve_many;
  (this->*compute)(backward, from.const_data_ptr(), weight.const_data_ptr<float>(), bias, to.mutable_data_ptr());
}

/// One block: threads expand its tiles together, then each computes some of the outputs, whose filters it expands only
/// for this.
void Winograd::convolve_few(bool backward, const void* from, const float* weight, const float* bias, void* to) const {
  const int64_t depth = backward ? shape_.filters : shape_.channels, row = whole_lanes(depth);
  const int64_t panels = divided_up(backward ? shape_.channels : shape_.filters, kPanel);
  const int64_t threads = at::get_num_threads();
  const at::Tensor v_memory = floats(Points::floats(points(), tiles(), row, row, kLanesPadding));
  const WinogradPoints v = Points::at(v_memory.mutable_data_ptr<float>(), tiles(), row, row, kLanesPadding);
  in_parts(tiles(), std::min(threads, tiles()), [&](int64_t begin, int64_t end, int64_t) {
    WinogradPoints part = v;
    part.at += begin * v.row_step;
    TRAINRUN_LOOP_OF(path_, winograd_expand)
    (shape_, backward ? WinogradExpansion::kGradientForInput : WinogradExpansion::kInput, from, {begin, end - begin}, 0,
     depth, part);
  });
  const int64_t parts = std::min(threads, panels), sums_step = tiles() * kPanel + kLanesPadding;
  const int64_t filters = points() * row * kPanel, memory = filters + points() * sums_step;
  const at::Tensor all = floats(parts * memory);
  in_parts(panels, parts, [&](int64_t begin, int64_t end, int64_t number) {
    float* const u = all.mutable_data_ptr<float>() + number * memory;
    for (int64_t panel = begin; panel < end; ++panel) {
      TRAINRUN_LOOP_OF(path_, winograd_expand_filters)(shape_, backward, weight, panel, u);
      TRAINRUN_LOOP_OF(path_, winograd_outputs)
      (shape_, backward, v, row, u, bias, {0, tiles()}, panel, u + filters, sums_step, to);
    }
  });
}

/// Threads expand the filters together, then each computes some tiles, block by block.
void Winograd::convolve_many(bool backward, const void* from, const float* weight, const float* bias, void* to) const {
  const int64_t depth = backward ? shape_.filters : shape_.channels, row = whole_lanes(depth);
  const int64_t width = backward ? shape_.channels : shape_.filters, panels = divided_up(width, kPanel);
  const int64_t threads = at::get_num_threads(), of_panel = points() * row * kPanel;
  const at::Tensor u_memory = floats(panels * of_panel);
  float* const u = u_memory.mutable_data_ptr<float>();
  in_parts(panels, std::min(threads, panels), [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t panel = begin; panel < end; ++panel) {
      TRAINRUN_LOOP_OF(path_, winograd_expand_filters)(shape_, backward, weight, panel, u + panel * of_panel);
    }
  });
  const int64_t unit = backward ? shape_.tiles_high * shape_.tiles_wide : 1;  // tiles that one thread must have
  const int64_t parts = std::min(threads, tiles() / unit);
  const int64_t block = block_of(divided_up(tiles(), parts), width), sums_step = block * kPanel + kLanesPadding;
  const int64_t of_points = Points::floats(points(), block, row, row, kLanesPadding);
  const int64_t memory = of_points + points() * sums_step;
  const at::Tensor all = floats(parts * memory);
  in_parts(tiles() / unit, parts, [&](int64_t begin, int64_t end, int64_t number) {
    float* const own = all.mutable_data_ptr<float>() + number * memory;
    const WinogradPoints v = Points::at(own, block, row, row, kLanesPadding);
    for (int64_t first = begin * unit; first < end * unit; first += block) {
      const WinogradTiles tiles{first, std::min(block, end * unit - first)};
      TRAINRUN_LOOP_OF(path_, winograd_expand)
      (shape_, backward ? WinogradExpansion::kGradientForInput : WinogradExpansion::kInput, from, tiles, 0, depth, v);
      for (int64_t panel = 0; panel < panels; ++panel) {
        TRAINRUN_LOOP_OF(path_, winograd_outputs)
        (shape_, backward, v, row, u + panel * of_panel, bias, tiles, panel, own + of_points, sums_step, to);
      }
    }
  });
}

at::Tensor Winograd::filter_gradient(const at::Tensor& x, const at::Tensor& grad_y) const {
  const int64_t taps = sizes_of(shape_.tile).taps, threads = at::get_num_threads();
  const int64_t panels = divided_up(shape_.channels, kPanel);
  const std::vector<int64_t> sizes = {shape_.filters, shape_.channels, taps, taps};
  const int64_t sums = points() * panels * kPanel * divided_up(shape_.filters, kWinogradGroup) * kWinogradGroup;
  // Threads share the tiles, if each can have sums of its own, else the channels.
  const bool by_tiles = tiles() > kFewTiles && sums * 4 <= kSumsOfEach;
  const int64_t parts = std::min(threads, by_tiles ? tiles() : panels);
  const at::Tensor all = at::empty({by_tiles ? parts : 1, shape_.filters, shape_.channels, taps, taps}, at::kFloat);
  float* const to = all.mutable_data_ptr<float>();
  in_parts(by_tiles ? tiles() : panels, parts, [&](int64_t begin, int64_t end, int64_t number) {
    const WinogradTiles own = by_tiles ? WinogradTiles{begin, end - begin} : WinogradTiles{0, tiles()};
    const int64_t first = by_tiles ? 0 : begin * kPanel;
    const int64_t last = by_tiles ? shape_.channels : std::min(end * kPanel, shape_.channels);
    const int64_t of_each = shape_.filters * shape_.channels * taps * taps;
    gather_filter_gradient(x.const_data_ptr(), grad_y.const_data_ptr(), own, first, last - first,
                           to + (by_tiles ? number * of_each : 0));
  });
  return all.size(0) == 1 ? all[0] : all.sum(0);
}

/// What `tiles` give to the gradients of all filters and of some channels, on one thread.
void Winograd::gather_filter_gradient(const void* x, const void* grad_y, WinogradTiles tiles, int64_t first_channel,
                                      int64_t channels, float* to) const {
  const int64_t groups = divided_up(shape_.filters, kWinogradGroup), of_sums = points() * kWinogradGroup * kPanel;
  const int64_t block = tiles.count <= kFewTiles ? tiles.count : block_of(tiles.count, shape_.channels);
  const bool once = block == tiles.count;  // then a group of sums is used only right after it was computed
  int64_t slice = divided_up(channels, kPanel) * kPanel;  // as many channels as keep the sums in cache
  while (!once && slice > kPanel && slice / kPanel * groups * of_sums * 4 > kSumsInCache) {
    slice = divided_up(slice / kPanel, 2) * kPanel;
  }
  const int64_t v_size = Points::floats(points(), block, slice, kPanel, 0);
  const int64_t z_size = Points::floats(points(), block, shape_.filters, kWinogradGroup, 0);
  const at::Tensor memory = floats(v_size + z_size + (once ? of_sums : slice / kPanel * groups * of_sums));
  float* const own = memory.mutable_data_ptr<float>();
  const WinogradPoints z = Points::at(own + v_size, block, shape_.filters, kWinogradGroup, 0);
  const WinogradPoints v = Points::at(own, block, slice, kPanel, 0);
  const int64_t end = first_channel + channels;
  for (int64_t c = first_channel; c < end; c += slice) {
    const int64_t here = std::min(slice, end - c);
    for (int64_t first = 0; first < tiles.count; first += block) {
      const WinogradTiles now{tiles.first + first, std::min(block, tiles.count - first)};
      TRAINRUN_LOOP_OF(path_, winograd_expand)(shape_, WinogradExpansion::kInput, x, now, c, here, v);
      TRAINRUN_LOOP_OF(path_, winograd_expand)
      (shape_, WinogradExpansion::kGradientForFilters, grad_y, now, 0, shape_.filters, z);
      float* sums = own + v_size + z_size;
      for (int64_t panel = 0; panel < here; panel += kPanel) {
        for (int64_t k = 0; k < shape_.filters; k += kWinogradGroup, sums += once ? 0 : of_sums) {
          const int64_t filters = std::min(kWinogradGroup, shape_.filters - k);
          WinogradPoints of_group = z, of_panel = v;
          of_group.at += k / kWinogradGroup * z.part_step;
          of_panel.at += panel / kPanel * v.part_step;
          TRAINRUN_LOOP_OF(path_, winograd_filter_sums)
          (shape_, of_group, of_panel, now.count, filters, first > 0, sums);
          if (first + now.count == tiles.count) {
            TRAINRUN_LOOP_OF(path_, winograd_filter_gradients)(shape_, sums, k, filters, c + panel, to);
          }
        }
      }
    }
  }
}

}  // namespace trainrun::kernels
