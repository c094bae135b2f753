#include <filesystem>
#include <limits>

#include "registry/data/published_file.h"
#include "registry/image_data/idx.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNumMnistClasses = 10;
constexpr int64_t kMnistSide = 28;
constexpr int64_t kNumTrain = 60000;
constexpr int64_t kNumTest = 10000;

/// One of the data sets that come as MNIST does.
struct Family {
  const char* name;
  const char* folder;  // in the cache
  std::vector<std::string> mirrors;
  std::vector<PublishedFile> files;  // train images, train labels, test images, test labels
};

// MD5s of the archives, and the first mirror of each: torchvision, datasets/mnist.py. MD5s of the contents: of the
// original files. The other mirrors are kept by those who publish the data or a framework's loader for it (Google's
// CVDF, Keras, Zalando Research); what they send is checked alike.
const Family& mnist() {
  static const Family family = {
      "MNIST",
      "mnist",
      {"https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/",
       "https://raw.githubusercontent.com/fgnt/mnist/master/"},
      {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"},
       {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"},
       {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"},
       {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"}}};
  return family;
}

const Family& fashion_mnist() {
  static const Family family = {"FashionMNIST",
                                "fashion_mnist",
                                {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                                 "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                                 "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
                                {{"train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", ""},
                                 {"train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", ""},
                                 {"t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", ""},
                                 {"t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", ""}}};
  return family;
}

const Family& kmnist() {
  static const Family family = {
      "KMNIST",
      "kmnist",
      {"https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"},
      {{"train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7", ""},
       {"train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344", ""},
       {"t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7", ""},
       {"t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134", ""}}};
  return family;
}

struct IdxOptions {
  std::string root;
  std::string split;
  bool download = false;
  std::vector<std::string> mirrors;
};

class IdxImages : public TensorDataset {
 public:
  IdxImages(const Family& family, IdxOptions options) : family_(family), options_(std::move(options)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    info.fields = {{"image", {1, kMnistSide, kMnistSide}, at::kFloat, std::nullopt},
                   {"label", {}, at::kLong, kNumMnistClasses}};
    info.target = "label";
    info.num_samples = is_train() ? kNumTrain : kNumTest;
    return info;
  }

  void open() override {
    const size_t first = is_train() ? 0 : 2;
    const std::string images_path = find(family_.files[first]);
    const std::string labels_path = find(family_.files[first + 1]);
    const at::Tensor images = read_idx(images_path, 3);
    const at::Tensor labels = read_idx(labels_path, 1);
    check(images, images_path, labels, labels_path);
    set_field("image", images.unsqueeze(1), std::numeric_limits<uint8_t>::max());
    set_field("label", labels.to(at::kLong));
  }

 private:
  bool is_train() const { return options_.split == "train"; }

  /// As downloaded, unpacked, or as torchvision lays it out.
  std::vector<fs::path> places(const std::string& name) const {
    const fs::path root(options_.root);
    const fs::path raw = root / family_.name / "raw";
    const std::string unpacked = fs::path(name).stem().string();
    return {root / unpacked, root / name, raw / unpacked, raw / name};
  }

  std::string find(const PublishedFile& file) const {
    std::vector<std::string> tried;
    for (const fs::path& place : places(file.name)) {
      std::error_code unreadable;
      if (fs::exists(place, unreadable)) return place.string();
      tried.push_back(place.string());
    }
    if (options_.download) return fetch(file);
    std::error_code unreadable;
    const std::string no_folder =
        fs::exists(options_.root, unreadable) ? "" : " (there is no folder " + options_.root + ")";
    throw DataError(std::string(family_.name) + ": no file " + fs::path(file.name).stem().string() + no_folder +
                    "; looked for " + join(tried) +
                    ". Set `root` to the folder that holds it, or `download: true` to fetch it.");
  }

  std::string fetch(const PublishedFile& file) const {
    return fetch_published(file, options_.mirrors.empty() ? family_.mirrors : options_.mirrors, options_.root,
                           family_.folder);
  }

  static void check(const at::Tensor& images, const std::string& images_path, const at::Tensor& labels,
                    const std::string& labels_path) {
    if (images.size(1) != kMnistSide || images.size(2) != kMnistSide) {
      throw DataError(images_path + ": images of " + std::to_string(images.size(1)) + "x" +
                      std::to_string(images.size(2)) + " pixels, expected 28x28");
    }
    if (images.size(0) == 0) throw DataError(images_path + ": holds no images");
    if (images.size(0) != labels.size(0)) {
      throw DataError(images_path + " holds " + std::to_string(images.size(0)) + " images, " + labels_path + " " +
                      std::to_string(labels.size(0)) + " labels");
    }
    const uint8_t* values = labels.const_data_ptr<uint8_t>();
    for (int64_t i = 0; i < labels.size(0); ++i) {
      if (values[i] >= kNumMnistClasses) {
        throw DataError(labels_path + ": label " + std::to_string(i) + " (counted from 0) is " +
                        std::to_string(values[i]) + ", expected 0 to 9");
      }
    }
  }

  const Family& family_;
  IdxOptions options_;
};

template <const Family& (*kFamily)()>
struct IdxComponent {
  std::string root;
  std::string split;
  bool download = false;
  std::vector<std::string> mirrors;

  static void describe(Fields<IdxComponent>& f) {
    f.required("root", &IdxComponent::root).doc("folder of the IDX files, plain or .gz; or torchvision's root");
    f.required("split", &IdxComponent::split).one_of({"train", "test"}).doc("60,000 images to train, 10,000 to test");
    f.optional("download", &IdxComponent::download)
        .doc("fetch the files that `root` lacks, through the cache that all recipes share (TRAINRUN_CACHE)");
    f.optional("mirrors", &IdxComponent::mirrors)
        .doc("URLs of folders to fetch from, in this order; the public ones by default");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const {
    return std::make_unique<IdxImages>(kFamily(), IdxOptions{root, split, download, mirrors});
  }
};

}  // namespace

void add_mnist_family(DatasetRegistry& datasets) {
  datasets.add<IdxComponent<mnist>>("MNIST", "handwritten digits, 28x28, 10 classes (LeCun, Cortes, Burges)");
  datasets.add<IdxComponent<fashion_mnist>>("FashionMNIST",
                                            "articles of clothing, 28x28, 10 classes (Xiao, Rasul, Vollgraf 2017)");
  datasets.add<IdxComponent<kmnist>>("KMNIST", "cursive Japanese characters, 28x28, 10 classes (Clanuwat et al. 2018)");
}

}  // namespace trainrun
