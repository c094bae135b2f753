#include "registry/datasets/image_samples.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "registry/build.h"
#include "registry/images/decode.h"
#include "registry/layer.h"

namespace trainrun {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;
constexpr size_t kMostNamed = 3;  // broken files

std::string pixels_text(const std::vector<int64_t>& shape) {
  return std::to_string(shape[1]) + "x" + std::to_string(shape[2]);
}

}  // namespace

ImageSamples::ImageSamples(ImageOptions options)
    : options_(std::move(options)),
      image_{"image", {options_.channels(), kAnySize, kAnySize}, at::kByte, std::nullopt} {
  DatasetInfo info;
  info.fields = {image_};
  for (const Component<TransformKind>& component : options_.image_transforms) {
    transforms_.emplace_back(build_at_place(component, {info}));
    try {
      if (transforms_.back()->pairs() || transforms_.back()->learns()) {
        throw Error(component.type + " looks at more than one image; name it under dataset.transforms");
      }
      transforms_.back()->describe(info);
    } catch (const std::exception& error) {
      throw_fault(component.place, component.path, "", error);
    }
  }
  image_ = info.fields[0];
}

const ImageSamples::Listing& ImageSamples::listing() const {
  if (!listing_) listing_ = list();
  return *listing_;
}

void ImageSamples::set_labels(at::Tensor labels, std::optional<int64_t> num_classes) {
  listing();
  listing_->labels = std::move(labels);
  listing_->num_classes = num_classes;
}

DatasetInfo ImageSamples::info() const {
  if (!sized_image_) {
    sized_image_ = image_;
    const bool is_open = std::count(image_.shape.begin(), image_.shape.end(), kAnySize) > 0;
    if (is_open) sized_image_->shape = first_shape();
  }
  DatasetInfo info;
  const at::Tensor& labels = listing().labels;
  info.fields = {*sized_image_, {"label", labels.sizes().slice(1).vec(), labels.scalar_type(), listing().num_classes}};
  info.target = "label";
  if (options_.broken == BrokenImages::kError) info.num_samples = size();
  return info;
}

std::vector<int64_t> ImageSamples::first_shape() const {
  const SampleDraws draws(DrawKey{}, std::vector<int64_t>{0});
  for (size_t i = 0;; ++i) {
    const std::string bytes = read_file(files()[i], kMostFileBytes);
    try {
      return changed(decoded(bytes, files()[i]), files()[i], 0, draws).sizes().slice(1).vec();
    } catch (const DataError&) {
      if (options_.broken == BrokenImages::kError || i + 1 == files().size()) throw;
    }
  }
}

void ImageSamples::open() {
  info();
  if (options_.broken == BrokenImages::kSkip || options_.cache == ImageCache::kMemory) read_all();
}

/// Decodes every file once: to keep it, or to see whether that goes well. A file that cannot be read is an error all the
/// same: tomorrow it may be there again, and training would go another way.
void ImageSamples::read_all() {
  std::vector<std::string> faults(files().size());
  std::vector<at::Tensor> images(files().size());
  at::parallel_for(0, size(), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::string bytes = read_file(files()[i], kMostFileBytes);
      try {
        at::Tensor image = decoded(bytes, files()[i]);
        if (options_.cache == ImageCache::kMemory) images[i] = std::move(image);
      } catch (const DataError& error) {
        faults[i] = error.what();
      }
    }
  });
  std::vector<int64_t> whole;
  std::vector<std::string> broken;
  for (size_t i = 0; i < faults.size(); ++i) {
    if (!faults[i].empty()) {
      broken.push_back(faults[i]);
      continue;
    }
    whole.push_back(static_cast<int64_t>(i));
    if (images[i].defined()) cached_.push_back(images[i]);
  }
  if (!broken.empty()) leave_out(whole, std::move(broken));
}

void ImageSamples::leave_out(const std::vector<int64_t>& whole, std::vector<std::string> broken) {
  if (options_.broken == BrokenImages::kError) throw DataError(broken[0]);
  const size_t count = broken.size();
  const size_t all = files().size();
  if (count > kMostNamed) broken.resize(kMostNamed);
  const std::string named = join(broken) + (count > kMostNamed ? ", …" : "");
  if (whole.empty()) throw DataError("no image can be decoded: " + named);
  notes_.push_back(std::to_string(count) + " of " + std::to_string(all) +
                   " images cannot be decoded and are left out: " + named);
  std::vector<std::string> files;
  files.reserve(whole.size());
  for (const int64_t number : whole) files.push_back(std::move(listing_->files[static_cast<size_t>(number)]));
  listing_->files = std::move(files);
  listing_->labels = listing_->labels.index_select(0, at::tensor(whole, at::kLong));
}

at::Tensor ImageSamples::decoded(const std::string& bytes, const std::string& file) const {
  try {
    return decode_image(bytes, options_.channels());
  } catch (const DataError& error) {
    throw DataError(file + ": " + error.what());
  }
}

at::Tensor ImageSamples::changed(const at::Tensor& pixels, const std::string& file, int64_t row,
                                 const SampleDraws& draws) const {
  Batch batch;
  batch.set("image", pixels.permute({2, 0, 1}).unsqueeze(0));
  for (size_t i = 0; i < transforms_.size(); ++i) {
    const SampleDraws own = draws.of_sample(row, static_cast<int64_t>(i));
    try {
      transforms_[i]->apply(batch, own);
    } catch (const LayerError& error) {
      throw DataError(file + ": " + error.what());
    }
    draws.note(own);
  }
  return batch.at("image");
}

Batch ImageSamples::get(const at::Tensor& indices) const {
  const int64_t* begin = indices.const_data_ptr<int64_t>();
  return get_drawn(indices, SampleDraws(DrawKey{}, {begin, begin + indices.numel()}));
}

Batch ImageSamples::get_drawn(const at::Tensor& indices, const SampleDraws& draws) const {
  const int64_t n = indices.numel();
  const int64_t* numbers = indices.const_data_ptr<int64_t>();
  const FieldInfo& field = *sized_image_;
  std::vector<int64_t> sizes = field.shape;
  sizes.insert(sizes.begin(), n);
  at::Tensor images = at::empty(sizes, at::TensorOptions(field.dtype).memory_format(at::MemoryFormat::ChannelsLast));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(numbers[i]);
    const std::string& file = files()[at];
    const at::Tensor one =
        changed(cached_.empty() ? decoded(read_file(file, kMostFileBytes), file) : cached_[at], file, i, draws);
    if (one.sizes().slice(1) != images.sizes().slice(1)) {
      throw DataError(file + ": the image has " + pixels_text(one.sizes().slice(1).vec()) + " pixels, others " +
                      pixels_text(field.shape) +
                      "; add image_transforms that make them alike, such as {type: Resize, size: [" +
                      std::to_string(field.shape[1]) + ", " + std::to_string(field.shape[2]) + "]}");
    }
    images[i].copy_(one[0]);
  }
  Batch batch;
  batch.set("image", images);
  batch.set("label", listing().labels.index_select(0, indices));
  return batch;
}

at::Tensor ImageSamples::column(const std::string& field) const {
  if (field != "label") return Dataset::column(field);
  return listing().labels;
}

std::string ImageSamples::place(int64_t index, const std::string&) const { return files()[static_cast<size_t>(index)]; }

}  // namespace trainrun
