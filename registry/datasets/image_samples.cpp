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
    transforms_.push_back(build_at_place(component, {info}));
    try {
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

DatasetInfo ImageSamples::info() const {
  const Listing& files = listing();
  if (!sized_image_) {
    sized_image_ = image_;
    const bool is_open = std::count(image_.shape.begin(), image_.shape.end(), kAnySize) > 0;
    if (is_open) sized_image_->shape = first_shape(files);
  }
  DatasetInfo info;
  info.fields = {*sized_image_, {"label", {}, at::kLong, files.num_classes}};
  info.target = "label";
  if (options_.broken == BrokenImages::kError) info.num_samples = static_cast<int64_t>(files.files.size());
  return info;
}

std::vector<int64_t> ImageSamples::first_shape(const Listing& listing) const {
  const SampleDraws draws(DrawKey{}, std::vector<int64_t>{0});
  for (size_t i = 0;; ++i) {
    try {
      return changed(decoded(listing.files[i]), listing.files[i], 0, draws).sizes().slice(1).vec();
    } catch (const DataError&) {
      if (options_.broken == BrokenImages::kError || i + 1 == listing.files.size()) throw;
    }
  }
}

void ImageSamples::open() {
  info();
  files_ = listing().files;
  if (options_.broken == BrokenImages::kSkip || options_.cache == ImageCache::kMemory) read_all();
}

/// Decodes every file once: to keep it, or to see whether that goes well.
void ImageSamples::read_all() {
  std::vector<std::string> faults(files_.size());
  std::vector<at::Tensor> images(files_.size());
  at::parallel_for(0, size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      try {
        at::Tensor image = decoded(files_[at]);
        if (options_.cache == ImageCache::kMemory) images[at] = image;
      } catch (const DataError& error) {
        faults[at] = error.what();
      }
    }
  });
  std::vector<File> whole;
  std::vector<std::string> broken;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!faults[i].empty()) {
      broken.push_back(faults[i]);
      continue;
    }
    whole.push_back(files_[i]);
    if (images[i].defined()) cached_.push_back(images[i]);
  }
  if (broken.empty()) return;
  if (options_.broken == BrokenImages::kError) throw DataError(broken[0]);
  const size_t all = files_.size();
  files_ = std::move(whole);
  const size_t count = broken.size();
  if (broken.size() > kMostNamed) broken.resize(kMostNamed);
  notes_.push_back(std::to_string(count) + " of " + std::to_string(all) +
                   " images cannot be decoded and are left out: " + join(broken) + (count > kMostNamed ? ", …" : ""));
  if (files_.empty()) throw DataError("no image can be decoded: " + join(broken));
}

at::Tensor ImageSamples::decoded(const File& file) const {
  const std::string bytes = read_file(file.path, kMostFileBytes);
  try {
    return decode_image(bytes, {options_.channels(), 0});
  } catch (const DataError& error) {
    throw DataError(file.path + ": " + error.what());
  }
}

at::Tensor ImageSamples::changed(const at::Tensor& pixels, const File& file, int64_t row,
                                 const SampleDraws& draws) const {
  Batch batch;
  batch.set("image", pixels.permute({2, 0, 1}).unsqueeze(0));
  for (size_t i = 0; i < transforms_.size(); ++i) {
    const SampleDraws own = draws.of_sample(row, static_cast<int64_t>(i));
    try {
      transforms_[i]->apply(batch, own);
    } catch (const LayerError& error) {
      throw DataError(file.path + ": " + error.what());
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
  at::Tensor labels = at::empty({n}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(numbers[i]);
    const File& file = files_[at];
    const at::Tensor one = changed(cached_.empty() ? decoded(file) : cached_[at], file, i, draws);
    if (one.sizes().slice(1) != images.sizes().slice(1)) {
      throw DataError(file.path + ": the image has " + pixels_text(one.sizes().slice(1).vec()) + " pixels, others " +
                      pixels_text(field.shape) +
                      "; add image_transforms that make them alike, such as {type: Resize, size: [" +
                      std::to_string(field.shape[1]) + ", " + std::to_string(field.shape[2]) + "]}");
    }
    images[i].copy_(one[0]);
    labels.mutable_data_ptr<int64_t>()[i] = file.label;
  }
  Batch batch;
  batch.set("image", images);
  batch.set("label", labels);
  return batch;
}

at::Tensor ImageSamples::column(const std::string& field) const {
  if (field != "label") return Dataset::column(field);
  std::vector<int64_t> labels;
  labels.reserve(files_.size());
  for (const File& file : files_) labels.push_back(file.label);
  return at::tensor(labels, at::kLong);
}

std::string ImageSamples::place(int64_t index, const std::string&) const {
  return files_[static_cast<size_t>(index)].path;
}

}  // namespace trainrun
