#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "registry/image_data/image_classes.h"
#include "registry/image_data/image_listing.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/transform.h"
#include "registry/kinds/unlabelled_data.h"

namespace trainrun {

/// What the channels of an image mean, by Pillow's words.
enum class ColorMode { kRgb, kGray };
template <>
struct Words<ColorMode> {
  static constexpr std::array kWords = {"RGB", "L"};
};

/// What becomes of a file that cannot be decoded.
enum class BrokenImages { kError, kSkip };
template <>
struct Words<BrokenImages> {
  static constexpr std::array kWords = {"error", "skip"};
};

/// Where decoded images are kept.
enum class ImageCache { kNone, kMemory, kDisk };
template <>
struct Words<ImageCache> {
  static constexpr std::array kWords = {"none", "memory", "disk"};
};

/// What becomes of images whose class the training data do not have.
enum class UnknownImages { kError, kSkip };
template <>
struct Words<UnknownImages> {
  static constexpr std::array kWords = {"error", "skip"};
};

/// What was found out about a data set, so that it is looked at once however often a recipe's data are built.
struct ImageMemory {
  std::mutex mutex;
  std::shared_ptr<const ImageListing> listing;
  std::optional<std::vector<int64_t>> shape;  // of an image as it goes into a batch
  KnownClasses known;  // what `set_inferred` was told, which `inferred` then says; by itself it renumbers nothing
};

/// The parameters that all data sets of image files share.
struct ImageOptions {
  std::vector<Component<TransformKind>> image_transforms;
  ColorMode mode = ColorMode::kRgb;
  BrokenImages broken = BrokenImages::kError;
  UnknownImages unknown_classes = UnknownImages::kError;
  ImageCache cache = ImageCache::kNone;

  template <class T>
  static void describe_into(Fields<T>& f);
  /// Of data sets whose files say which classes there are.
  template <class T>
  static void describe_classes_into(Fields<T>& f);
  int64_t channels() const { return mode == ColorMode::kRgb ? 3 : 1; }

  /// Kept by all copies. What reads other files takes a new one.
  std::shared_ptr<ImageMemory> memory = std::make_shared<ImageMemory>();
};

/// Masks that belong to the images.
struct MaskOptions {
  int64_t num_classes = 0;
  double fill = 0;  // what comes in from outside a mask that is moved
};

/// Image files and their labels, or masks: fields `image` ([C, H, W] bytes, whose memory lies channel after channel of a
/// pixel, which convolutions are quickest with) and `label`, or `mask` ([H, W] int64). A file is read and decoded when
/// its sample is asked for; each image goes through `image_transforms` before it is put into a batch, for which all must
/// be of one size by then.
class ImageSamples : public Dataset {
 public:
  explicit ImageSamples(ImageOptions options, std::optional<MaskOptions> masks = std::nullopt);

  /// Looks at the folder, and at one image if the transforms leave the size of a file as it is.
  DatasetInfo info() const override;
  void open() override;
  int64_t size() const override { return static_cast<int64_t>(files().size()); }
  Batch get(const at::Tensor& indices) const override;
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override;
  at::Tensor column(const std::string& field) const override;
  /// The classes of other data are numbered as the training data's are, once `set_inferred` or `set_learnt` says how.
  nlohmann::json learnt() const override;
  void set_learnt(const nlohmann::json& state) override;
  void set_inferred(const nlohmann::json& inferred) override;
  DatasetFacts facts() const override;
  /// [C, H, W] of an image as image_transforms leave it; kAnySize where they leave the size of a file as it is.
  const std::vector<int64_t>& image_shape() const { return image_.shape; }

 protected:
  using Listing = ImageListing;
  /// Throws DataError where there are no images.
  virtual Listing list() const = 0;
  /// The file of image `number`, as it lies on the disk. Throws ReadError, without the place that names the file.
  virtual std::string read_image(size_t number) const;
  /// What the images are read from: files, and what else says which images of those files they are.
  struct Sources {
    std::vector<std::string> files;
    std::string within = {};
  };
  virtual Sources sources() const { return {files()}; }

  const Listing& listing() const;
  /// The place in the list of image `number`, which differ where images are left out.
  size_t listed(size_t number) const;

 private:
  nlohmann::json inferred() const;
  /// `folder`: the name of the folder that a file lies in.
  std::vector<std::string> texts(const std::string& column) const;
  const std::vector<std::string>& files() const { return listing().files; }
  /// The classes that this or another data set of the same component is read by; none: those of the listing.
  KnownClasses told_classes() const;
  void check_classes() const;
  void note_what_is_left_out();
  /// Of the file of image `number`, what shows whether a camera was turned; "" where it cannot be read.
  std::string beginning_of(size_t number) const;
  /// The bytes of image `number`. Throws ReadError, or DataError where there is no such file.
  std::string bytes_of(size_t number) const;
  /// What is said of image `number`, or of its file, after the place at which a table names it.
  std::string named(size_t number, const std::string& message) const;
  using Transforms = std::vector<std::shared_ptr<const Transform>>;

  std::shared_ptr<const Transform> transform_of_masks(const Component<TransformKind>& component,
                                                      const Transform& transform) const;
  /// [H, W, C]. Throws DataError, which names the file.
  at::Tensor decoded(size_t number) const;
  at::Tensor decoded_mask(size_t number) const;
  /// Either of the two; the error says what to do as well.
  at::Tensor with_advice(at::Tensor (ImageSamples::*decode)(size_t) const, size_t number) const;
  /// The pixels [H, W, C] of a file as they go into a batch: [1, C, H, W].
  static at::Tensor changed(const Transforms& transforms, const at::Tensor& pixels, const std::string& file,
                            int64_t row, const SampleDraws& draws);
  at::Tensor changed_image(size_t number, int64_t row, const SampleDraws& draws) const;
  at::Tensor masks_of(const at::Tensor& indices, const SampleDraws& draws) const;
  /// The shape of the first image that can be decoded, as it goes into a batch.
  std::vector<int64_t> first_shape() const;
  std::vector<int64_t> shape_once() const;
  void read_all();
  /// What to do about a file that cannot be decoded, after the message that says so.
  const char* advice() const;
  void require_one_size() const;
  /// Throws DataError where `image`, that of a file as it goes into a batch, is of another size than the first.
  void require_size(size_t number, const at::Tensor& image) const;
  /// Goes on with the files of those numbers alone.
  void leave_out(const std::vector<int64_t>& whole, std::vector<std::string> broken);

  ImageOptions options_;
  std::optional<MaskOptions> mask_options_;
  Transforms transforms_;
  Transforms mask_transforms_;      // null where masks stay as they are
  FieldInfo image_;                 // after the transforms; kAnySize where they leave the size of a file as it is
  KnownClasses known_;              // by which the images are read; none: those of the listing
  mutable UnknownClasses unknown_;  // and which are not among them
  mutable std::shared_ptr<const Listing> listing_;
  mutable std::optional<FieldInfo> sized_image_;
  std::vector<at::Tensor> cached_;        // [H, W, C] of each, or empty
  std::vector<at::Tensor> cached_masks_;  // [H, W, 1]
  std::vector<std::string> notes_;
};

/// The pictures that `source` names, and those of folders and the folders below them, read as `options` say: by their
/// image_transforms and colours. Their files' names come beside the predictions. Throws DataError, also where a picture
/// comes in a shape other than that which the model reads. (unlabelled_images.cpp)
std::unique_ptr<UnlabelledData> read_unlabelled_images(const UnlabelledSource& source, ImageOptions options);

template <class T>
void ImageOptions::describe_classes_into(Fields<T>& f) {
  f.optional("unknown_classes", &ImageOptions::unknown_classes)
      .doc(
          "what to do with images of a class that the training data (in a Concat or Mixture: its first data set) do "
          "not have: error: stop and name the class; skip: leave them out and count them");
}

template <class T>
void ImageOptions::describe_into(Fields<T>& f) {
  f.optional("image_transforms", &ImageOptions::image_transforms)
      .doc(
          "transforms of each image before batching, which make images of different sizes fit into one batch; "
          "the pixels are bytes, from 0 to 255");
  f.optional("mode", &ImageOptions::mode).doc("RGB: three channels; L: gray, one channel; files are converted");
  f.optional("broken", &ImageOptions::broken)
      .doc(
          "what to do with a file that cannot be decoded, does not exist, or is an image of another format: error: "
          "stop and name it; skip: decode all files once at the start, and leave out and count those that cannot be "
          "decoded");
  f.optional("cache", &ImageOptions::cache)
      .doc(
          "memory: all images are decoded once at the start and kept, as bytes; disk: they are kept in a file in the "
          "cache folder (TRAINRUN_CACHE), for later runs, too; none: they are decoded each time they are used");
}

}  // namespace trainrun
