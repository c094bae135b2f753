#include "registry/image_data/image_samples.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>

#include "registry/components/transforms/masks.h"
#include "registry/data/text_file.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/images/decode.h"
#include "registry/formats/text/unicode.h"
#include "registry/image_data/camera_turns.h"
#include "registry/image_data/decoded_images.h"
#include "registry/kinds/build.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/layer.h"
#include "registry/language/text_forms.h"

namespace trainrun {

using nlohmann::json;

namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;
constexpr size_t kMostBrokenNamed = 3;  // broken files

std::string pixels_text(const std::vector<int64_t>& shape) {
  return std::to_string(shape[1]) + "x" + std::to_string(shape[2]);
}

}  // namespace

ImageSamples::ImageSamples(ImageOptions options, std::optional<MaskOptions> masks)
    : options_(std::move(options)),
      mask_options_(masks),
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
      if (mask_options_) mask_transforms_.push_back(transform_of_masks(component, *transforms_.back()));
    } catch (const std::exception& error) {
      throw_fault(component.place, component.path, "", error);
    }
  }
  image_ = info.fields[0];
}

std::shared_ptr<const Transform> ImageSamples::transform_of_masks(const Component<TransformKind>& component,
                                                                  const Transform& transform) const {
  const auto* masks = dynamic_cast<const ChangesMasks*>(&transform);
  if (!masks) throw Error(component.type + " cannot change an image and its mask alike; leave it out");
  return masks->for_masks(mask_options_->fill);
}

const ImageSamples::Listing& ImageSamples::listing() const {
  if (listing_) return *listing_;
  std::shared_ptr<const Listing> whole;
  {
    const std::lock_guard lock(options_.memory->mutex);
    if (!options_.memory->listing) {
      options_.memory->listing = std::make_shared<const Listing>(list());
      for (const std::string& name : options_.memory->listing->classes) {
        require_utf8(name, "the name of the class '" + unicode::valid(name) + "'");
      }
    }
    whole = options_.memory->listing;
  }
  const bool is_numbered = !known_.are_known() || mask_options_ || !whole->num_classes;
  listing_ = is_numbered || KnownClasses::of(*whole) == known_
                 ? whole
                 : std::make_shared<const Listing>(read_by_classes(known_, *whole, unknown_));
  return *listing_;
}

KnownClasses ImageSamples::told_classes() const {
  if (known_.are_known()) return known_;
  const std::lock_guard lock(options_.memory->mutex);
  return options_.memory->known;
}

json ImageSamples::inferred() const {
  if (const KnownClasses told = told_classes(); told.are_known()) return told.to_json();
  return mask_options_ ? json{{"num_classes", mask_options_->num_classes}} : KnownClasses::of(listing()).to_json();
}

void ImageSamples::set_inferred(const json& inferred) {
  if (listing_ || inferred.is_null()) return;
  known_ = KnownClasses::from_json(inferred);
  const std::lock_guard lock(options_.memory->mutex);
  options_.memory->known = known_;
}

json ImageSamples::learnt() const { return listing().classes.empty() ? json() : inferred(); }

void ImageSamples::set_learnt(const json& state) {
  const KnownClasses classes = KnownClasses::from_json(state);
  if (!classes.are_known() || mask_options_ || classes == KnownClasses::of(listing())) return;
  UnknownClasses unknown;
  auto read = std::make_shared<const Listing>(read_by_classes(classes, listing(), unknown));
  if (!unknown.counts.empty()) throw DataError(unknown.fault(classes));
  known_ = classes;
  listing_ = std::move(read);
}

void ImageSamples::check_classes() const {
  if (mask_options_ && known_.are_known() && known_.count != mask_options_->num_classes) {
    throw DataError("num_classes is " + std::to_string(mask_options_->num_classes) + ", but the training data have " +
                    std::to_string(known_.count) + " classes, whose numbers the masks hold");
  }
  const bool may_skip = options_.unknown_classes == UnknownImages::kSkip;
  if (unknown_.counts.empty() || (may_skip && !files().empty())) return;
  throw DataError(unknown_.fault(known_) + (may_skip
                                                ? "; no image is of one of them"
                                                : "; the data set's unknown_classes: skip leaves such images out"));
}

size_t ImageSamples::listed(size_t number) const {
  return listing().numbers.empty() ? number : static_cast<size_t>(listing().numbers[number]);
}

std::string ImageSamples::named(size_t number, const std::string& message) const {
  return listing().lines.empty() ? message : listing().place(number) + ": " + message;
}

std::string ImageSamples::read_image(size_t number) const { return read_file(files()[number], kMostFileBytes); }

/// What is missing is a fault of the data, like what is broken; what the system does not let us read may be there again
/// tomorrow.
std::string ImageSamples::bytes_of(size_t number) const {
  try {
    return read_image(number);
  } catch (const ReadError& error) {
    if (error.is_missing() && listing().archives.empty()) throw DataError(error.what());
    if (listing().lines.empty()) throw;
    throw error.named_at(listing().place(number));
  }
}

std::vector<std::string> ImageSamples::texts(const std::string& column) const {
  std::vector<std::string> texts;
  if (column != "folder") return texts;
  for (const std::string& file : files()) texts.push_back(std::filesystem::path(file).parent_path().filename());
  return texts;
}

DatasetFacts ImageSamples::facts() const {
  DatasetFacts facts;
  facts.field = [this](const std::string& name) {
    FieldFacts field;
    if (name == "label" && !mask_options_) field.class_names = listing().classes;
    if (name == "mask" && mask_options_)
      field.palette = palette_of_mask(read_file(listing().masks.at(0), kMostFileBytes));
    return field;
  };
  facts.place = [this](int64_t index, const std::string&) { return files()[static_cast<size_t>(index)]; };
  facts.stored = [this](int64_t index) { return bytes_of(static_cast<size_t>(index)); };
  facts.texts = [this](const std::string& column) { return texts(column); };
  facts.image_options = &options_;
  facts.notes = [this] { return notes_; };
  facts.inferred = [this] { return inferred(); };
  facts.unlabelled = [this](const UnlabelledSource& source) { return read_unlabelled_images(source, options_); };
  return facts;
}

DatasetInfo ImageSamples::info() const {
  if (listing().files.empty()) check_classes();  // which says why none is left
  if (!sized_image_) {
    sized_image_ = image_;
    const bool is_open = std::count(image_.shape.begin(), image_.shape.end(), kAnySize) > 0;
    if (is_open) sized_image_->shape = shape_once();
  }
  DatasetInfo info;
  info.fields = {*sized_image_};
  if (mask_options_) {
    const std::vector<int64_t>& shape = sized_image_->shape;
    info.fields.push_back({"mask", {shape[1], shape[2]}, at::kLong, mask_options_->num_classes});
  } else {
    const at::Tensor& labels = listing().labels;
    const at::ScalarType type = labels.is_floating_point() ? at::kFloat : labels.scalar_type();
    std::optional<int64_t> count = listing().num_classes;
    if (const KnownClasses told = told_classes(); count && told.are_known()) count = told.count;
    info.fields.push_back({"label", labels.sizes().slice(1).vec(), type, count});
  }
  info.target = info.fields[1].name;
  if (options_.broken == BrokenImages::kError) info.num_samples = size();
  return info;
}

std::vector<int64_t> ImageSamples::shape_once() const {
  listing();
  const std::lock_guard lock(options_.memory->mutex);
  if (!options_.memory->shape) options_.memory->shape = first_shape();
  return *options_.memory->shape;
}

std::vector<int64_t> ImageSamples::first_shape() const {
  const SampleDraws draws(DrawKey{}, std::vector<int64_t>{0});
  for (size_t i = 0;; ++i) {
    try {
      return changed_image(i, 0, draws).sizes().slice(1).vec();
    } catch (const ReadError&) {
      throw;
    } catch (const DataError&) {
      if (options_.broken == BrokenImages::kError || i + 1 == files().size()) throw;
    }
  }
}

void ImageSamples::open() {
  listing();
  check_classes();
  if (options_.broken == BrokenImages::kError && !listing().unread.empty()) {
    throw DataError(listing().unread[0] + advice());
  }
  info();
  note_what_is_left_out();
  if (options_.broken == BrokenImages::kSkip || options_.cache != ImageCache::kNone) read_all();
  require_one_size();
  const std::string note = note_on_turned(
      files().size(), [this](size_t number) { return beginning_of(number); },
      [this](size_t number) { return files()[number]; });
  if (!note.empty()) notes_.push_back(note);
}

std::string ImageSamples::beginning_of(size_t number) const {
  try {
    if (!listing().archives.empty()) return read_image(number).substr(0, kTurnBytes);
    FileReader file(files()[number]);
    std::string begin(std::min<uint64_t>(file.size(), kTurnBytes), '\0');
    file.read(begin.data(), begin.size());
    return begin;
  } catch (const DataError&) {
    return "";  // it is said when a sample of it is asked for
  }
}

/// Looks at some images from the first to the last, where no transform makes all alike: in an evaluation set another size
/// would otherwise end the run only after an epoch.
void ImageSamples::require_one_size() const {
  constexpr size_t kLookedAt = 32;
  if (std::count(image_.shape.begin(), image_.shape.end(), kAnySize) == 0) return;
  const size_t count = files().size();
  const size_t looked_at = cached_.empty() ? std::min(count, kLookedAt) : count;
  const SampleDraws draws(DrawKey{}, std::vector<int64_t>{0});
  for (size_t i = 0; i < looked_at; ++i) {
    const size_t number = looked_at == 1 ? 0 : i * (count - 1) / (looked_at - 1);
    at::Tensor image;
    try {
      image = changed_image(number, 0, draws);
    } catch (const DataError&) {
      continue;  // it is said when a sample of it is asked for
    }
    require_size(number, image);
  }
}

void ImageSamples::require_size(size_t number, const at::Tensor& image) const {
  const std::vector<int64_t>& shape = sized_image_->shape;
  const std::vector<int64_t> own = image.sizes().slice(1).vec();
  if (own == shape) return;
  throw DataError(named(number, files()[number]) + ": the image has " + pixels_text(own) + " pixels, others " +
                  pixels_text(shape) + "; add image_transforms that make them alike, such as {type: Resize, size: [" +
                  std::to_string(shape[1]) + ", " + std::to_string(shape[2]) + "]}");
}

void ImageSamples::note_what_is_left_out() {
  if (!listing().passed_over.empty()) notes_.push_back(listing().passed_over);
  if (unknown_.counts.empty()) return;
  int64_t count = 0;
  for (const auto& [name, images] : unknown_.counts) count += images;
  notes_.push_back(std::to_string(count) + " of " + std::to_string(count + size()) +
                   " images are of classes that the training data do not have, and are left out: " + unknown_.text());
}

/// Decodes every file once: to keep it, or to see whether that goes well.
void ImageSamples::read_all() {
  const size_t count = files().size();
  const bool keep = options_.cache == ImageCache::kMemory;
  const auto all = [&](const std::vector<std::string>& paths, const std::string& kind, const DecodeImage& decode) {
    if (options_.cache == ImageCache::kDisk) return decoded_on_disk(paths, count, kind, decode);
    DecodedImages result{std::vector<at::Tensor>(count), std::vector<std::string>(count)};
    decode_ahead(decode, 0, count, keep, result);
    return result;
  };
  const Sources sources = this->sources();
  const std::string kind = std::to_string(options_.channels()) + " channels" + sources.within;
  DecodedImages images = all(sources.files, kind, [this](size_t i) { return decoded(i); });
  DecodedImages masks;
  if (mask_options_) masks = all(listing().masks, "mask", [this](size_t i) { return decoded_mask(i); });
  for (const std::string& note : {images.note, masks.note}) {
    if (!note.empty()) notes_.push_back(note);
  }
  std::vector<int64_t> whole;
  std::vector<std::string> broken = listing().unread;
  for (size_t i = 0; i < count; ++i) {
    const std::string& fault = images.faults[i].empty() && mask_options_ ? masks.faults[i] : images.faults[i];
    if (!fault.empty()) {
      broken.push_back(named(i, fault));
      continue;
    }
    whole.push_back(static_cast<int64_t>(i));
    if (images.images[i].defined()) cached_.push_back(images.images[i]);
    if (mask_options_ && masks.images[i].defined()) cached_masks_.push_back(masks.images[i]);
  }
  if (!broken.empty()) leave_out(whole, std::move(broken));
}

void ImageSamples::leave_out(const std::vector<int64_t>& whole, std::vector<std::string> broken) {
  if (options_.broken == BrokenImages::kError) throw DataError(broken[0] + advice());
  const size_t count = broken.size();
  const size_t all = files().size() + listing().unread.size();
  const std::string named = join_first(std::move(broken), kMostBrokenNamed);
  if (whole.empty()) throw DataError("no image can be decoded: " + named);
  notes_.push_back(std::to_string(count) + " of " + std::to_string(all) +
                   " images cannot be decoded and are left out: " + named);
  if (whole.size() < files().size()) listing_ = std::make_shared<const Listing>(chosen_of(listing(), whole));
}

const char* ImageSamples::advice() const {
  return options_.broken == BrokenImages::kError ? "; the data set's broken: skip leaves such files out" : "";
}

at::Tensor ImageSamples::decoded(size_t number) const {
  const std::string& file = files()[number];
  const std::string bytes = bytes_of(number);
  try {
    return decode_image(bytes, options_.channels());
  } catch (const DataError& error) {
    throw DataError(file + ": " + error.what());
  }
}

at::Tensor ImageSamples::decoded_mask(size_t number) const {
  const std::string& file = listing().masks[number];
  const std::string bytes = read_file(file, kMostFileBytes);
  try {
    return decode_mask(bytes).unsqueeze(2);
  } catch (const DataError& error) {
    throw DataError(file + ": " + error.what());
  }
}

at::Tensor ImageSamples::with_advice(at::Tensor (ImageSamples::*decode)(size_t) const, size_t number) const {
  try {
    return (this->*decode)(number);
  } catch (const ReadError&) {
    throw;
  } catch (const DataError& error) {
    throw DataError(named(number, error.what()) + advice());
  }
}

at::Tensor ImageSamples::changed(const Transforms& transforms, const at::Tensor& pixels, const std::string& file,
                                 int64_t row, const SampleDraws& draws) {
  Batch batch;
  batch.set("image", pixels.permute({2, 0, 1}).unsqueeze(0));
  for (size_t i = 0; i < transforms.size(); ++i) {
    if (!transforms[i]) continue;
    const SampleDraws own = draws.of_sample(row, static_cast<int64_t>(i));
    try {
      transforms[i]->apply(batch, own);
    } catch (const LayerError& error) {
      throw DataError(file + ": " + error.what());
    }
    draws.note(own);
  }
  return batch.at("image");
}

at::Tensor ImageSamples::changed_image(size_t number, int64_t row, const SampleDraws& draws) const {
  const at::Tensor pixels = cached_.empty() ? with_advice(&ImageSamples::decoded, number) : cached_[number];
  return changed(transforms_, pixels, named(number, files()[number]), row, draws);
}

/// [N, H, W] int64.
at::Tensor ImageSamples::masks_of(const at::Tensor& indices, const SampleDraws& draws) const {
  const std::vector<int64_t>& shape = sized_image_->shape;
  at::Tensor masks = at::empty({indices.numel(), shape[1], shape[2]}, at::kLong);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto number = static_cast<size_t>(indices.const_data_ptr<int64_t>()[i]);
    const at::Tensor pixels =
        cached_masks_.empty() ? with_advice(&ImageSamples::decoded_mask, number) : cached_masks_[number];
    const std::string& file = listing().masks[number];
    const at::Tensor mask = changed(mask_transforms_, pixels, file, i, draws);  // [1, 1, H, W]
    if (mask.sizes().slice(2) != masks.sizes().slice(1)) {
      throw DataError(file + ": the mask has " + pixels_text(mask.sizes().slice(1).vec()) + " pixels, its image " +
                      pixels_text(shape) + (transforms_.empty() ? "" : ", after the transforms"));
    }
    masks[i].copy_(mask[0][0]);
  }
  return masks;
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
    const auto number = static_cast<size_t>(numbers[i]);
    const at::Tensor one = changed_image(number, i, draws);
    require_size(number, one);
    images[i].copy_(one[0]);
  }
  Batch batch;
  batch.set("image", images);
  if (mask_options_) {
    batch.set("mask", masks_of(indices, draws));
  } else {
    batch.set("label", listing().labels.index_select(0, indices));
  }
  return batch;
}

at::Tensor ImageSamples::column(const std::string& field) const {
  if (field != "label" || mask_options_) return Dataset::column(field);
  return listing().labels;
}
}  // namespace trainrun
