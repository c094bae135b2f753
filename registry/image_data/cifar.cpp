#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/data/data_file.h"
#include "registry/data/gzip_file.h"
#include "registry/data/published_file.h"
#include "registry/image_data/shards/tar_reader.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 32;
constexpr int64_t kPixelBytes = 3 * kSide * kSide;  // of an image: all red, all green, all blue
constexpr uint64_t kMostCifarBytes = uint64_t{1} << 30;

/// CIFAR-10 or CIFAR-100, as Krizhevsky published them for C programs: files of records, each of some labels of a byte
/// and the image's bytes.
struct CifarFamily {
  const char* name;
  int64_t num_classes;
  int64_t label_bytes;  // the last one is the class
  const char* folder;   // within the archive
  std::vector<std::string> train, test;
  PublishedFile archive;
};

// MD5s: https://www.cs.toronto.edu/~kriz/cifar.html.
const CifarFamily& cifar10() {
  static const CifarFamily family = {
      "CIFAR10",
      10,
      1,
      "cifar-10-batches-bin",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      {"test_batch.bin"},
      {"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", ""}};
  return family;
}

const CifarFamily& cifar100() {
  static const CifarFamily family = {"CIFAR100",
                                     100,
                                     2,
                                     "cifar-100-binary",
                                     {"train.bin"},
                                     {"test.bin"},
                                     {"cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", ""}};
  return family;
}

struct CifarOptions {
  std::string root;
  std::string split;
  bool download = false;
  std::vector<std::string> mirrors;
};

class CifarImages : public TensorDataset {
 public:
  CifarImages(const CifarFamily& family, CifarOptions options) : family_(family), options_(std::move(options)) {}

  DatasetInfo info() const override {
    constexpr int64_t kNumTrain = 50000, kNumTest = 10000;
    DatasetInfo info;
    info.fields = {{"image", {3, kSide, kSide}, at::kByte, std::nullopt},
                   {"label", {}, at::kLong, family_.num_classes}};
    info.target = "label";
    info.num_samples = is_train() ? kNumTrain : kNumTest;
    return info;
  }

  void open() override {
    std::vector<Records> files;
    if (const auto folder = unpacked_folder()) {
      for (const std::string& name : names()) {
        const std::string path = (*folder / name).string();
        files.push_back(records_of(path, read_whole(path)));
      }
    } else {
      files = read_archive(archive());
    }
    set_fields(files);
  }

  /// Images pixel by pixel (channels last), as data sets of pictures give them: convolutions of them are faster.
  Batch get(const at::Tensor& indices) const override {
    Batch batch = TensorDataset::get(indices);
    at::Tensor& images = batch.at("image");
    images = images.contiguous(at::MemoryFormat::ChannelsLast);
    return batch;
  }

 private:
  struct Records {
    std::string place;  // the file, or the archive and the file in it
    std::string_view bytes;
    std::shared_ptr<const void> owner;  // of the bytes
  };
  static Records records_of(const std::string& place, std::string bytes) {
    const auto owner = std::make_shared<const std::string>(std::move(bytes));
    return {place, *owner, owner};
  }

  bool is_train() const { return options_.split == "train"; }
  const std::vector<std::string>& names() const { return is_train() ? family_.train : family_.test; }

  /// Where all files lie that the split needs.
  std::optional<fs::path> unpacked_folder() const {
    for (const fs::path& folder : {fs::path(options_.root) / family_.folder, fs::path(options_.root)}) {
      const bool has_all = std::all_of(names().begin(), names().end(), [&](const std::string& name) {
        std::error_code unreadable;
        return fs::exists(folder / name, unreadable);
      });
      if (has_all) return folder;
    }
    return std::nullopt;
  }

  std::string archive() const {
    const fs::path path = fs::path(options_.root) / family_.archive.name;
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) return path.string();
    if (options_.download) {
      const std::vector<std::string> mirrors = {"https://www.cs.toronto.edu/~kriz/"};
      return fetch_published(family_.archive, options_.mirrors.empty() ? mirrors : options_.mirrors, options_.root,
                             "cifar");
    }
    const std::string no_folder =
        fs::exists(options_.root, unreadable) ? "" : " (there is no folder " + options_.root + ")";
    throw DataError(std::string(family_.name) + ": neither " + path.string() + " nor " +
                    (fs::path(options_.root) / family_.folder / names()[0]).string() + " is there" + no_folder +
                    ". Set `root` to the folder that holds the binary version, or `download: true` to fetch it.");
  }

  static std::string read_whole(const std::string& path) {
    DataFile file(path);
    std::string bytes;
    std::string piece(size_t{1} << 22, '\0');
    while (const size_t got = file.read(piece.data(), piece.size())) {
      if (bytes.size() + got > kMostCifarBytes) throw DataError(path + ": too large for a file of CIFAR images");
      bytes.append(piece, 0, got);
    }
    return bytes;
  }

  /// The files of the split that the archive holds in the folder in which they were published. None is unpacked.
  std::vector<Records> read_archive(const std::string& path) const {
    std::map<std::string, Records> found;
    const auto kept = unpacked_in_cache(path);
    TarReader tar(kept ? tar_in_memory(path, kept->bytes()) : tar_in_data_file(path));
    while (const auto member = tar.next()) {
      for (const std::string& name : names()) {
        if (member->name != std::string(family_.folder) + "/" + name) continue;
        const std::string place = path + ":" + name;
        found[name] = kept ? Records{place, kept->bytes().substr(member->offset, member->size), kept}
                           : records_of(place, tar.read(kMostCifarBytes));
      }
    }
    std::vector<Records> files;
    for (const std::string& name : names()) {
      const auto file = found.find(name);
      if (file == found.end()) throw DataError(path + ": holds no " + family_.folder + "/" + name);
      files.push_back(std::move(file->second));
    }
    return files;
  }

  void set_fields(const std::vector<Records>& files) {
    const int64_t record = family_.label_bytes + kPixelBytes;
    int64_t count = 0;
    for (const Records& file : files) {
      const auto size = static_cast<int64_t>(file.bytes.size());
      if (size == 0 || size % record != 0) {
        throw DataError(file.place + ": has " + std::to_string(size) + " bytes, expected a multiple of " +
                        std::to_string(record) + ", the bytes of an image and its labels");
      }
      count += size / record;
    }
    at::Tensor images = at::empty({count, 3, kSide, kSide}, at::kByte);
    at::Tensor labels = at::empty({count}, at::kLong);
    auto* pixels = images.mutable_data_ptr<uint8_t>();
    auto* classes = labels.mutable_data_ptr<int64_t>();
    for (const Records& file : files) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(file.bytes.data());
      const auto* end = bytes + file.bytes.size();
      for (int64_t i = 0; bytes < end; bytes += record, ++i) {
        *classes++ = class_of(bytes[family_.label_bytes - 1], file.place, i);
        pixels = std::copy_n(bytes + family_.label_bytes, kPixelBytes, pixels);
      }
    }
    set_field("image", images);
    set_field("label", labels);
  }
  int64_t class_of(uint8_t label, const std::string& place, int64_t record) const {
    if (label < family_.num_classes) return label;
    throw DataError(place + ": label " + std::to_string(record) + " (counted from 0) is " + std::to_string(label) +
                    ", expected 0 to " + std::to_string(family_.num_classes - 1));
  }

  const CifarFamily& family_;
  CifarOptions options_;
};

template <const CifarFamily& (*kFamily)()>
struct CifarComponent {
  std::string root;
  std::string split;
  bool download = false;
  std::vector<std::string> mirrors;

  static void describe(Fields<CifarComponent>& f) {
    f.required("root", &CifarComponent::root)
        .doc("folder of the binary version: the archive as it is published, or the folder that it holds");
    f.required("split", &CifarComponent::split).one_of({"train", "test"}).doc("50,000 images to train, 10,000 to test");
    f.optional("download", &CifarComponent::download)
        .doc("fetch the archive if `root` lacks it, through the cache that all recipes share (TRAINRUN_CACHE)");
    f.optional("mirrors", &CifarComponent::mirrors)
        .doc("URLs of folders to fetch from, in this order; the public one by default");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const {
    return std::make_unique<CifarImages>(kFamily(), CifarOptions{root, split, download, mirrors});
  }
};

}  // namespace

void add_cifar(DatasetRegistry& datasets) {
  datasets.add<CifarComponent<cifar10>>("CIFAR10", "photographs, 32x32, 10 classes (Krizhevsky 2009)");
  datasets.add<CifarComponent<cifar100>>("CIFAR100", "photographs, 32x32, 100 classes (Krizhevsky 2009)");
}

}  // namespace trainrun
