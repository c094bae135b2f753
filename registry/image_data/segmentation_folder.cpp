#include <filesystem>
#include <set>
#include <utility>

#include "registry/image_data/image_files.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

struct SegmentationFolder : ImageOptions {
  std::string root;
  std::string images = "images";
  std::string masks = "masks";
  std::string image_suffix;
  std::string mask_suffix;
  int64_t num_classes = 0;
  int64_t mask_fill = 0;

  static void describe(Fields<SegmentationFolder>& f) {
    f.required("root", &SegmentationFolder::root)
        .doc(
            "a folder with the folders images and masks: the mask of images/a/1.jpg is masks/a/1.png, whose pixels are "
            "numbers of classes, gray or by a palette");
    f.optional("images", &SegmentationFolder::images)
        .doc("the folder of the images, within root: images/train; . is root itself");
    f.optional("masks", &SegmentationFolder::masks)
        .doc("the folder of the masks, within root: annotations/train; it may be that of the images");
    f.optional("image_suffix", &SegmentationFolder::image_suffix)
        .doc(
            "what an image's name ends with, before .jpg, and its mask's name does not: _leftImg8bit; other images are "
            "skipped");
    f.optional("mask_suffix", &SegmentationFolder::mask_suffix)
        .doc("what a mask's name ends with, before .png, in place of image_suffix: _gtFine_labelTrainIds");
    f.required("num_classes", &SegmentationFolder::num_classes).at_least(1).doc("number of classes in the masks");
    f.optional("mask_fill", &SegmentationFolder::mask_fill)
        .at_least(0)
        .at_most(255)
        .doc(
            "the class of what image_transforms bring in from outside a mask; 255 is ignored by a loss with "
            "ignore_index: 255");
    describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class SegmentationDataset : public ImageSamples {
 public:
  explicit SegmentationDataset(const SegmentationFolder& options)
      : ImageSamples(options, MaskOptions{options.num_classes, static_cast<double>(options.mask_fill)}),
        options_(options),
        images_(folder_within(options.root, options.images)),
        masks_(folder_within(options.root, options.masks)) {}

 protected:
  Listing list() const override {
    std::error_code unreadable;
    for (const auto& [name, folder] : {std::pair("images", images_), std::pair("masks", masks_)}) {
      if (fs::is_directory(folder, unreadable)) continue;
      throw DataError("SegmentationFolder: there is no folder " + folder.string() + "; `" + name +
                      "` is the folder within `root` that holds the " + name);
    }
    try {
      return list_pairs();
    } catch (const fs::filesystem_error& error) {
      throw DataError("SegmentationFolder: " + error.path1().string() + " cannot be listed: " + error.code().message());
    }
  }

 private:
  /// Whether a file of the folder in which both images and masks are is a mask.
  bool is_mask(const fs::path& file) const {
    return file.extension() == ".png" && file.stem().string().ends_with(options_.mask_suffix) &&
           (!ends_as_image(file) || options_.image_suffix.size() <= options_.mask_suffix.size());
  }
  /// Whether a file that was found in the images' folder belongs to the masks, which may be in it, too.
  bool is_of_masks(const fs::path& file) const {
    return images_ == masks_ ? is_mask(file) : is_within(masks_, images_) && is_within(file, masks_);
  }
  bool ends_as_image(const fs::path& file) const { return file.stem().string().ends_with(options_.image_suffix); }
  /// Where the mask of an image must be.
  fs::path mask_of(const fs::path& image) const {
    std::string stem = image.stem().string();
    stem.resize(stem.size() - options_.image_suffix.size());
    return masks_ / image.lexically_relative(images_).parent_path() / (stem + options_.mask_suffix + ".png");
  }
  Listing list_pairs() const {
    ImageFiles found = images_below(images_);
    Listing listing;
    std::set<std::string> used;
    for (const std::string& file : found.images) {
      if (is_of_masks(file)) continue;
      if (!ends_as_image(file)) {
        found.passed_over.add(PassedOver::kOtherSuffix, file);
        continue;
      }
      const fs::path mask = mask_of(file);
      used.insert(mask.string());
      if (fs::exists(mask)) {
        listing.files.push_back(file);
        listing.masks.push_back(mask.string());
      } else {
        found.unread.push_back("SegmentationFolder: there is no " + mask.string() + ", the mask of " + file);
      }
    }
    const ImageFiles all_masks = images_below(masks_);
    for (const std::string& mask : all_masks.images) {
      const bool is_image = images_ == masks_ ? !is_mask(mask) : is_within(mask, images_) && !is_of_masks(mask);
      if (!is_image && !used.contains(mask)) found.passed_over.add(PassedOver::kNoMaskOfAnImage, mask);
    }
    if (images_ != masks_ && !is_within(masks_, images_)) found.passed_over.add(all_masks.passed_over);
    if (listing.files.empty() && !found.unread.empty()) throw DataError(found.unread[0]);
    if (listing.files.empty()) {
      throw DataError("SegmentationFolder: " + images_.string() + " holds no JPEG, PNG, WebP or BMP file" +
                      (options_.image_suffix.empty() ? "" : " whose name ends with " + options_.image_suffix));
    }
    listing.unread = std::move(found.unread);
    listing.passed_over = found.passed_over.text();
    return listing;
  }

  SegmentationFolder options_;
  fs::path images_;
  fs::path masks_;
};

std::unique_ptr<Dataset> SegmentationFolder::build(const DatasetInputs&) const {
  const fs::path folder = folder_within(root, images);
  if (folder == folder_within(root, masks) && image_suffix == mask_suffix) {
    throw Error("SegmentationFolder: images and masks are both in " + folder.string() +
                ", so their names must differ: write mask_suffix, such as _mask where the mask of 1.jpg is 1_mask.png");
  }
  return std::make_unique<SegmentationDataset>(*this);
}

}  // namespace

void add_segmentation_folder(DatasetRegistry& datasets) {
  datasets.add<SegmentationFolder>("SegmentationFolder",
                                   "image files, each with a mask that has the class of every pixel");
}

}  // namespace trainrun
