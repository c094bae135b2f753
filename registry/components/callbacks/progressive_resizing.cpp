#include <ATen/TensorOperators.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <algorithm>
#include <cmath>

#include "registry/kinds/callback.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/sample_draws.h"

namespace trainrun {

/// How images are made smaller.
enum class ResizingMode { kResize, kCrop };
template <>
struct Words<ResizingMode> {
  static constexpr std::array kWords = {"resize", "crop"};
};

namespace {

struct ProgressiveResizing {
  ResizingMode mode = ResizingMode::kResize;
  double initial_scale = 0.5;
  double finetune_fraction = 0.2;
  double delay_fraction = 0.5;
  int64_t size_increment = 4;
  bool resize_targets = false;
  static void describe(Fields<ProgressiveResizing>& f) {
    f.optional("mode", &ProgressiveResizing::mode)
        .doc("resize: the whole image, by the nearest pixel; crop: a part of it, the same for all images of a step");
    f.optional("initial_scale", &ProgressiveResizing::initial_scale)
        .greater_than(0)
        .at_most(1)
        .doc("height and width of the first images, as a share of their own");
    f.optional("finetune_fraction", &ProgressiveResizing::finetune_fraction)
        .at_least(0)
        .at_most(1)
        .doc("share of all steps, at the end, whose images have their own size");
    f.optional("delay_fraction", &ProgressiveResizing::delay_fraction)
        .at_least(0)
        .at_most(1)
        .doc("share of all steps, at the beginning, whose images have the initial size; between the two they grow");
    f.optional("size_increment", &ProgressiveResizing::size_increment)
        .at_least(1)
        .unit("pixels")
        .doc("widths are multiples of this");
    f.optional("resize_targets", &ProgressiveResizing::resize_targets)
        .doc("also resize the batch's other fields with the images' height and width, such as masks");
  }
  void check(Checker& checker) const {
    if (delay_fraction + finetune_fraction <= 1) return;
    checker.fail("delay_fraction", "and finetune_fraction together cover more than all steps");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// Semantics of MosaicML Composer's ProgressiveResizing, by optimizer steps. Source: Howard 2018, "Now anyone can train
/// Imagenet in 18 minutes" (fastai).
class Resizer : public Callback {
 public:
  explicit Resizer(const ProgressiveResizing& options) : options_(options) {}
  bool reads_gradients(bool) const override { return false; }
  void before_forward(Run& run, Batch& batch) override {
    const std::string field = batch.fields().front().name;
    const at::Tensor images = batch.at(field);
    if (images.dim() != 4) {
      throw Error("it makes images [N, C, H, W] smaller, but " + field + " is " + shape_text(images.sizes()));
    }
    const double scale = scale_for(run, images.size(3));
    if (scale >= 1) return;
    const Window window = window_of(run, images, scale);
    if (options_.resize_targets) {
      const Batch whole = batch;
      for (const Batch::Field& other : whole.fields()) {
        const at::Tensor& tensor = other.tensor;
        const bool is_like = other.name != field && tensor.dim() >= 3 && tensor.size(-2) == images.size(2) &&
                             tensor.size(-1) == images.size(3);
        if (is_like) batch.set(other.name, changed(tensor, window, scale));
      }
    }
    batch.set(field, changed(images, window, scale));
  }

 private:
  struct Window {
    int64_t top, left, height, width;
  };

  /// Of images so wide, at the step that is being made.
  double scale_for(const Run& run, int64_t width) const {
    const double elapsed = static_cast<double>(run.step()) / static_cast<double>(run.total_steps());
    double grown = 0;
    if (elapsed >= options_.delay_fraction) {
      const double span = 1 - options_.finetune_fraction - options_.delay_fraction;
      grown = span > 0 ? std::min((elapsed - options_.delay_fraction) / span, 1.0) : 1;
    }
    const double scale = options_.initial_scale + (1 - options_.initial_scale) * grown;
    const auto increment = static_cast<double>(options_.size_increment);
    const double pixels = std::nearbyint(static_cast<double>(width) * scale / increment) * increment;  // ties to even
    return pixels / static_cast<double>(width);
  }

  /// The part of the images that is left; with `crop` it lies anywhere, as seed and step say.
  Window window_of(const Run& run, const at::Tensor& images, double scale) const {
    const auto scaled = [&](int64_t size) { return static_cast<int64_t>(static_cast<double>(size) * scale); };
    Window window = {0, 0, scaled(images.size(2)), scaled(images.size(3))};
    if (window.height < 1 || window.width < 1) {
      throw Error("images of " + shape_text(images.sizes()) +
                  " would have no pixel left; choose a larger initial_scale");
    }
    if (options_.mode == ResizingMode::kResize) return window;
    constexpr int64_t kPlace = 1'000'000;  // beyond all transforms
    RandomStream draws = SampleDraws({run.seed(), 0, kPlace}, {run.step()}).of(0);
    window.top = draws.integer(images.size(2) - window.height);
    window.left = draws.integer(images.size(3) - window.width);
    return window;
  }

  at::Tensor changed(const at::Tensor& tensor, const Window& window, double scale) const {
    if (options_.mode == ResizingMode::kCrop) {
      return tensor.narrow(-2, window.top, window.height).narrow(-1, window.left, window.width).contiguous();
    }
    const bool has_channels = tensor.dim() == 4;
    const at::Tensor planes = has_channels ? tensor : tensor.unsqueeze(1);
    const bool is_float = planes.is_floating_point();  // there is no kernel for integers
    const at::Tensor resized =
        at::upsample_nearest2d(is_float ? planes : planes.to(at::kDouble), {window.height, window.width}, scale, scale);
    const at::Tensor typed = resized.to(tensor.scalar_type());
    return has_channels ? typed : typed.squeeze(1);
  }

  ProgressiveResizing options_;
};

std::unique_ptr<Callback> ProgressiveResizing::build(const CallbackInputs&) const {
  return std::make_unique<Resizer>(*this);
}

}  // namespace

void add_progressive_resizing(CallbackRegistry& callbacks) {
  callbacks.add<ProgressiveResizing>("ProgressiveResizing",
                                     "trains on smaller images first, which grow to their own size");
}

}  // namespace trainrun
