// A class of each pixel: a PNG file for each picture.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "registry/formats/files/file_io.h"
#include "registry/formats/images/encode.h"
#include "registry/language/error.h"
#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using Scores = LossFacts::Scores;

class MaskOutcome : public Outcome {
 public:
  explicit MaskOutcome(const OutcomeInputs& inputs)
      : folder_(inputs.options.masks),
        is_one_(inputs.loss.of_classes == Scores::kNone),
        threshold_(inputs.loss.of_one == Scores::kLogits ? 0.0 : 0.5),
        roots_(inputs.roots) {
    if (folder_.empty()) {
      throw Error("predict: the model gives each pixel a class; name a folder for the masks: --masks FOLDER");
    }
    if (inputs.target) palette_ = inputs.target->palette;
    const auto num_classes = static_cast<size_t>(std::max<int64_t>(inputs.output().size(1), 2));
    while (!palette_.empty() && palette_.size() < 3 * num_classes) palette_.push_back(255);  // a class without a colour
    if (inputs.output().size(1) > 256) throw Error("predict: a mask of more than 256 classes cannot be a PNG file");
  }
  bool wants_names() const override { return true; }

  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor& output = batch.outputs.at(0);
    const at::Tensor masks =
        (is_one_ ? output.select(1, 0) > threshold_ : output.argmax(1)).to(at::kByte).unsqueeze(3);  // [N, H, W, 1]
    std::vector<std::string> files;
    for (int64_t i = 0; i < masks.size(0); ++i) {
      files.push_back(file_for(batch.names[static_cast<size_t>(i)]));
      if (!written_.insert(files.back()).second) {
        throw Error("predict: two pictures would have the mask " + files.back() + ", " +
                    batch.names[static_cast<size_t>(i)] + " among them; predict for one folder of pictures at a time");
      }
      create_folders(fs::path(files.back()).parent_path().string());
      write_file_atomically(files.back(), encode_png(masks[i], palette_));
    }
    return {{{"mask", std::move(files)}}};
  }

 private:
  /// As the picture lies within the folder that the user named, so lies its mask within the masks' folder; beneath the
  /// name of that folder, where several are named.
  std::string file_for(const std::string& name) const {
    fs::path own = fs::path(name).filename();
    for (const fs::path root : roots_) {
      const fs::path within = fs::path(name).lexically_relative(root);
      const bool lies_there = fs::is_directory(root) && !within.empty() && *within.begin() != "..";
      if (!lies_there) continue;
      own = roots_.size() == 1 ? within : fs::path(root).filename() / within;
    }
    return (fs::path(folder_) / own.replace_extension(".png")).string();
  }

  std::string folder_;
  bool is_one_;
  double threshold_;
  std::vector<std::string> roots_;
  std::vector<uint8_t> palette_;
  std::set<std::string> written_;
};

}  // namespace

std::unique_ptr<Outcome> make_mask_outcome(const OutcomeInputs& inputs) {
  const at::Tensor& output = inputs.output();
  if (output.dim() != 4) return nullptr;
  const bool has_classes = inputs.loss.of_classes != Scores::kNone;
  const bool is_one = output.size(1) == 1 && inputs.loss.of_one != Scores::kNone;
  return has_classes || is_one ? std::make_unique<MaskOutcome>(inputs) : nullptr;
}

}  // namespace trainrun
