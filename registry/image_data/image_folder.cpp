#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>

#include "registry/image_data/image_files.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

struct ImageFolder : ImageOptions {
  std::string root;

  static void describe(Fields<ImageFolder>& f) {
    f.required("root", &ImageFolder::root)
        .doc(
            "a folder with a folder of JPEG, PNG, WebP or BMP files for each class; classes are numbered in the order "
            "of their names in the training data. Hidden folders (.NAME, @eaDir, __MACOSX) are skipped");
    describe_classes_into(f);
    describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class ImageFolderDataset : public ImageSamples {
 public:
  explicit ImageFolderDataset(const ImageFolder& options) : ImageSamples(options), root_(options.root) {}

 protected:
  Listing list() const override {
    std::error_code unreadable;
    if (!fs::is_directory(root_, unreadable)) {
      throw DataError("ImageFolder: there is no folder " + root_ +
                      "; `root` is the folder that holds the classes' folders");
    }
    try {
      return list_classes();
    } catch (const fs::filesystem_error& error) {
      throw DataError("ImageFolder: " + root_ + " cannot be listed: " + error.code().message() + " (" +
                      error.path1().string() + ")");
    }
  }

 private:
  Listing list_classes() const {
    std::vector<std::string> classes;
    bool has_images = false;
    ImageFiles others;  // that lie in `root` itself
    for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_directory() && !is_hidden_name(name)) {
        classes.push_back(name);
      } else if (!entry.is_directory() && is_image_name(entry.path()) && fs::exists(entry.path())) {
        has_images = true;
        others.passed_over.add(PassedOver::kNoClass, entry.path());
      } else {
        add_other_entry(entry, others);
      }
    }
    std::sort(classes.begin(), classes.end());
    std::sort(others.unread.begin(), others.unread.end());
    if (classes.empty()) {
      throw DataError("ImageFolder: " + root_ + " holds no folders" +
                      (has_images ? ", but images; put those of each class into a folder of its own" : ""));
    }
    return list_images(std::move(classes), std::move(others));
  }

  Listing list_images(std::vector<std::string> classes, ImageFiles others) const {
    Listing listing;
    listing.num_classes = static_cast<int64_t>(classes.size());
    std::vector<int64_t> labels;
    for (size_t label = 0; label < classes.size(); ++label) {
      const ImageFiles own = images_below(fs::path(root_) / classes[label]);
      if (own.images.empty() && own.unread.empty()) {
        throw DataError("ImageFolder: " + (fs::path(root_) / classes[label]).string() +
                        " holds no JPEG, PNG, WebP or BMP file, and every folder in `root` is a class; is `root` the "
                        "folder that holds the classes' folders?");
      }
      listing.files.insert(listing.files.end(), own.images.begin(), own.images.end());
      labels.resize(listing.files.size(), static_cast<int64_t>(label));
      others.add(own);
    }
    if (labels.empty()) throw DataError(others.unread.at(0));
    listing.labels = at::tensor(labels, at::kLong);
    listing.classes = std::move(classes);
    listing.unread = std::move(others.unread);
    listing.passed_over = others.passed_over.text();
    return listing;
  }

  std::string root_;
};

std::unique_ptr<Dataset> ImageFolder::build(const DatasetInputs&) const {
  return std::make_unique<ImageFolderDataset>(*this);
}

}  // namespace

void add_image_folder(DatasetRegistry& datasets) {
  datasets.add<ImageFolder>("ImageFolder", "image files, a folder for each class, as torchvision's ImageFolder");
}

}  // namespace trainrun
