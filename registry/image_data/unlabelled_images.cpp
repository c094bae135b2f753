// Pictures without labels.
#include <ATen/ops/zeros.h>

#include <filesystem>

#include "registry/data/one_piece.h"
#include "registry/image_data/image_files.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/layer_shapes.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// Pictures, whatever they show: the target is zero.
class UnlabelledImages : public ImageSamples {
 public:
  UnlabelledImages(ImageOptions options, std::vector<std::string> paths, DatasetInfo like)
      : ImageSamples(std::move(options)), paths_(std::move(paths)), like_(std::move(like)) {}

  /// As the training data have them: the image first, then the target.
  DatasetInfo info() const override {
    DatasetInfo info = ImageSamples::info();
    info.fields.resize(1);
    info.target = like_.target;
    if (const FieldInfo* target = like_.find(like_.target)) info.fields.push_back(*target);
    return info;
  }
  Batch get(const at::Tensor& indices) const override { return with_target(ImageSamples::get(indices)); }
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override {
    return with_target(ImageSamples::get_drawn(indices, draws));
  }
  std::vector<std::string> listed_files() const { return listing().files; }

 protected:
  Listing list() const override {
    Listing listing;
    PassedOver passed_over;
    for (const std::string& path : paths_) {
      if (!fs::is_directory(path)) {
        listing.files.push_back(path);
        continue;
      }
      try {
        ImageFiles found = images_below(path);
        if (found.images.empty() && found.unread.empty()) {
          throw DataError(path + " holds no JPEG, PNG, WebP or BMP file");
        }
        listing.files.insert(listing.files.end(), found.images.begin(), found.images.end());
        listing.unread.insert(listing.unread.end(), found.unread.begin(), found.unread.end());
        passed_over.add(found.passed_over);
      } catch (const fs::filesystem_error& error) {
        throw DataError(path + " cannot be listed: " + error.code().message());
      }
    }
    if (listing.files.empty()) throw DataError(listing.unread.empty() ? "there is no image" : listing.unread[0]);
    listing.passed_over = passed_over.text();
    listing.labels = at::zeros({static_cast<int64_t>(listing.files.size())}, at::kLong);
    return listing;
  }

 private:
  Batch with_target(const Batch& read) const {
    Batch batch;
    batch.set("image", read.at("image"));
    const FieldInfo* target = like_.find(like_.target);
    if (!target) return batch;
    std::vector<int64_t> shape = {read.size()};
    shape.insert(shape.end(), target->shape.begin(), target->shape.end());
    batch.set(target->name, at::zeros(shape, target->dtype));
    return batch;
  }

  std::vector<std::string> paths_;
  DatasetInfo like_;
};

}  // namespace

std::unique_ptr<UnlabelledData> read_unlabelled_images(const UnlabelledSource& source, ImageOptions options) {
  if (source.with_target) throw DataError("a series of pictures cannot be forecast");
  options.memory = std::make_shared<ImageMemory>();  // these are other files
  options.cache = ImageCache::kNone;
  if (source.broken) options.broken = BrokenImages::kSkip;
  auto data = std::make_unique<UnlabelledImages>(options, source.paths, source.info);
  data->open();
  const std::vector<int64_t> found = data->info().fields[0].shape;
  const std::vector<int64_t>& read = source.info.fields.at(0).shape;
  const std::vector<int64_t> made = data->image_shape();
  for (size_t i = 0; i < read.size(); ++i) {
    if (made[i] != kAnySize || read[i] == kAnySize || found[i] == read[i]) continue;  // the transforms give it its size
    throw DataError("an image of " + source.paths[0] + " comes as " + shape_text(found) + ", but the model reads " +
                    shape_text(read) + "; resize the images by dataset.eval.image_transforms");
  }
  std::vector<ValueColumn> beside;
  beside.push_back({"file", data->listed_files()});
  return one_piece(std::move(data), std::move(beside), source.begin);
}

}  // namespace trainrun
