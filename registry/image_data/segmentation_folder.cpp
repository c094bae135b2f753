#include <filesystem>
#include <set>

#include "registry/image_data/image_files.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

struct SegmentationFolder : ImageOptions {
  std::string root;
  int64_t num_classes = 0;
  int64_t mask_fill = 0;

  static void describe(Fields<SegmentationFolder>& f) {
    f.required("root", &SegmentationFolder::root)
        .doc(
            "a folder with the folders images and masks: the mask of images/a/1.jpg is masks/a/1.png, whose pixels are "
            "numbers of classes, gray or by a palette");
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
        root_(options.root) {}

 protected:
  Listing list() const override {
    const fs::path images = root_ / "images";
    const fs::path masks = root_ / "masks";
    std::error_code unreadable;
    for (const fs::path& folder : {images, masks}) {
      if (fs::is_directory(folder, unreadable)) continue;
      throw DataError("SegmentationFolder: there is no folder " + folder.string() +
                      "; `root` is the folder that holds the folders images and masks");
    }
    try {
      return list_pairs(images, masks);
    } catch (const fs::filesystem_error& error) {
      throw DataError("SegmentationFolder: " + error.path1().string() + " cannot be listed: " + error.code().message());
    }
  }

 private:
  Listing list_pairs(const fs::path& images, const fs::path& masks) const {
    ImageFiles found = images_below(images);
    Listing listing;
    std::set<std::string> used;
    for (const std::string& file : found.images) {
      const fs::path mask = (masks / fs::path(file).lexically_relative(images)).replace_extension(".png");
      used.insert(mask.string());
      if (fs::exists(mask)) {
        listing.files.push_back(file);
        listing.masks.push_back(mask.string());
      } else {
        found.unread.push_back("SegmentationFolder: there is no " + mask.string() + ", the mask of " + file);
      }
    }
    const ImageFiles all_masks = images_below(masks);
    for (const std::string& mask : all_masks.images) {
      if (!used.contains(mask)) found.passed_over.add(PassedOver::kNoMaskOfAnImage, mask);
    }
    found.passed_over.add(all_masks.passed_over);
    if (listing.files.empty() && !found.unread.empty()) throw DataError(found.unread[0]);
    if (listing.files.empty()) {
      throw DataError("SegmentationFolder: " + images.string() + " holds no JPEG, PNG, WebP or BMP file");
    }
    listing.unread = std::move(found.unread);
    listing.passed_over = found.passed_over.text();
    return listing;
  }

  fs::path root_;
};

std::unique_ptr<Dataset> SegmentationFolder::build(const DatasetInputs&) const {
  return std::make_unique<SegmentationDataset>(*this);
}

}  // namespace

void add_segmentation_folder(DatasetRegistry& datasets) {
  datasets.add<SegmentationFolder>("SegmentationFolder",
                                   "image files, each with a mask that has the class of every pixel");
}

}  // namespace trainrun
