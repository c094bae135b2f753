#include <ATen/ops/tensor.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "registry/data/text_file.h"
#include "registry/formats/files/regular_file.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset.h"

namespace trainrun {

/// What is to be told of a pet, by torchvision's words.
enum class PetTarget { kCategory, kBinaryCategory };
template <>
struct Words<PetTarget> {
  static constexpr std::array kWords = {"category", "binary-category"};
};

namespace {

namespace fs = std::filesystem;

struct OxfordIiitPet : ImageOptions {
  std::string root;
  std::string split;
  PetTarget target_types = PetTarget::kCategory;

  static void describe(Fields<OxfordIiitPet>& f) {
    f.required("root", &OxfordIiitPet::root)
        .doc("the folder in which images.tar.gz and annotations.tar.gz were unpacked; or torchvision's root");
    f.required("split", &OxfordIiitPet::split).one_of({"trainval", "test"}).doc("3,680 images to train, 3,669 to test");
    f.optional("target_types", &OxfordIiitPet::target_types)
        .doc("category: the breed, one of 37; binary-category: 0 for a cat, 1 for a dog");
    describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class PetImages : public ImageSamples {
 public:
  explicit PetImages(const OxfordIiitPet& options) : ImageSamples(options), options_(options) {}

 protected:
  Listing list() const override {
    const fs::path base = base_folder();
    const std::string path = (base / "annotations" / (options_.split + ".txt")).string();
    open_regular_file(path);  // what is wrong with the file itself is said first
    std::ifstream lines(path);
    Listing listing;
    listing.list = path;
    std::vector<int64_t> labels;
    const bool is_category = options_.target_types == PetTarget::kCategory;
    listing.num_classes = is_category ? kBreeds : kSpecies;
    int64_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      require_utf8(line, path + ":" + std::to_string(number));
      std::istringstream words(line);
      std::string name;
      int64_t breed = 0;
      int64_t species = 0;
      if (!(words >> name) || name.starts_with('#')) continue;
      if (!(words >> breed >> species) || breed < 1 || breed > kBreeds || species < 1 || species > kSpecies) {
        throw DataError(path + ":" + std::to_string(number) + ": '" + line +
                        "', expected a name, a breed from 1 to 37 and a species, 1 or 2");
      }
      listing.files.push_back((base / "images" / (name + ".jpg")).string());
      listing.lines.push_back(number);
      labels.push_back((is_category ? breed : species) - 1);
    }
    if (labels.empty()) throw DataError(path + ": names no images");
    listing.labels = at::tensor(labels, at::kLong);
    return listing;
  }

 private:
  static constexpr int64_t kBreeds = 37;
  static constexpr int64_t kSpecies = 2;

  fs::path base_folder() const {
    const std::string list = "annotations/" + options_.split + ".txt";
    for (const fs::path& base : {fs::path(options_.root), fs::path(options_.root) / "oxford-iiit-pet"}) {
      std::error_code unreadable;
      if (fs::exists(base / list, unreadable)) return base;
    }
    throw DataError(
        "OxfordIIITPet: there is no " + (fs::path(options_.root) / list).string() +
        "; unpack images.tar.gz and annotations.tar.gz (https://www.robots.ox.ac.uk/~vgg/data/pets/) into " +
        options_.root);
  }

  OxfordIiitPet options_;
};

std::unique_ptr<Dataset> OxfordIiitPet::build(const DatasetInputs&) const { return std::make_unique<PetImages>(*this); }

}  // namespace

void add_oxford_pets(DatasetRegistry& datasets) {
  datasets.add<OxfordIiitPet>("OxfordIIITPet", "photographs of cats and dogs, 37 breeds (Parkhi et al. 2012)");
}

}  // namespace trainrun
