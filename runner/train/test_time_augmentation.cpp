#include "runner/train/test_time_augmentation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/reflection_pad2d.h>

#include <algorithm>

namespace trainrun {
namespace {

bool has(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// How a view differs from the images: mirrored, and moved by so many eighths down and to the right.
struct View {
  bool is_mirrored = false;
  int64_t down = 0;
  int64_t right = 0;
};

std::vector<View> views_of(const std::vector<std::string>& words) {
  std::vector<View> views(1);
  if (has(words, "five_crop"))
    views.insert(views.end(), {{false, -1, -1}, {false, -1, 1}, {false, 1, -1}, {false, 1, 1}});
  const size_t num_plain = views.size();
  for (size_t i = 0; has(words, "flip") && i < num_plain; ++i) views.push_back({true, views[i].down, views[i].right});
  return views;
}

bool is_image(const at::Tensor& tensor) { return tensor.dim() == 4 && tensor.is_floating_point(); }

/// `images` [N, C, H, W] as `view` shows them.
at::Tensor seen(const at::Tensor& images, const View& view) {
  at::Tensor result = images;
  if (view.down != 0 || view.right != 0) {
    const int64_t height = images.size(2), width = images.size(3);
    const int64_t rows = std::max<int64_t>(height / 8, 1), columns = std::max<int64_t>(width / 8, 1);
    if (rows >= height || columns >= width) {
      throw Error("evaluation.tta: five_crop needs images of at least 2 x 2 pixels, these are " +
                  std::to_string(height) + " x " + std::to_string(width));
    }
    result = at::reflection_pad2d(images, {columns, columns, rows, rows})
                 .narrow(2, view.down < 0 ? 0 : 2 * rows, height)
                 .narrow(3, view.right < 0 ? 0 : 2 * columns, width);
  }
  return (view.is_mirrored ? at::flip(result, {3}) : result).contiguous(images.suggest_memory_format());
}

class MeanOverViews : public Predictor {
 public:
  explicit MeanOverViews(const std::vector<View>& views) : views_(views) {}

  Tensors predict(const Batch& batch, const Forward& forward) override {
    Tensors sums;
    for (const View& view : views_) {
      Batch seen_batch = batch;
      bool has_images = false;
      for (const Batch::Field& field : batch.fields()) {
        if (!is_image(field.tensor)) continue;
        seen_batch.set(field.name, seen(field.tensor, view));
        has_images = true;
      }
      if (!has_images) throw Error("evaluation.tta is for images [N, C, H, W], and the batch has none");
      const Tensors outputs = forward(seen_batch);
      for (size_t i = 0; i < outputs.size(); ++i) {
        const at::Tensor output = put_back(outputs[i], view);
        if (sums.size() == i) {
          sums.push_back(output);
        } else if (output.is_floating_point()) {
          sums[i] = sums[i] + output;
        }
      }
    }
    for (at::Tensor& sum : sums) {
      if (sum.is_floating_point()) sum = sum / static_cast<double>(views_.size());
    }
    return sums;
  }

 private:
  /// An output of four dimensions has a place for each pixel.
  static at::Tensor put_back(const at::Tensor& output, const View& view) {
    if (output.dim() < 4) return output;
    if (view.down != 0 || view.right != 0) {
      throw Error("evaluation.tta: five_crop is for models that give one output for an image, not one for each pixel");
    }
    return view.is_mirrored ? at::flip(output, {3}) : output;
  }

  const std::vector<View>& views_;
};

class Augmented : public Scope {
 public:
  explicit Augmented(const std::vector<View>& views) : predictor_(views) {}
  Predictor* predictor() override { return &predictor_; }

 private:
  MeanOverViews predictor_;
};

class TestTimeAugmentation : public Callback {
 public:
  explicit TestTimeAugmentation(const std::vector<std::string>& words) : views_(views_of(words)) {}
  bool reads_gradients(bool) const override { return false; }
  std::unique_ptr<Scope> around_evaluation(Run&) override { return std::make_unique<Augmented>(views_); }

 private:
  std::vector<View> views_;
};

}  // namespace

std::unique_ptr<Callback> test_time_augmentation(const std::vector<std::string>& views) {
  return std::make_unique<TestTimeAugmentation>(views);
}

}  // namespace trainrun
