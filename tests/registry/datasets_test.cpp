#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstdlib>
#include <filesystem>

#include "registry/data/data_files.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/kinds/dataset.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"
#include "tests/registry/dataset_support.h"

namespace trainrun {
namespace {

using test::all_of;
using test::check_info;
using test::contains;
using test::dataset;
using test::gzip;
using test::message_of;
using test::open_dataset;

// --- files that come with trainrun

TEST_CASE("a file that comes with trainrun is found; for one that does not, the places tried are named") {
  CHECK(std::filesystem::exists(shipped_file("recipes/data/digits.csv.gz")));
  const std::string message = message_of<DataError>([] { shipped_file("recipes/data/nonsense.csv"); });
  CHECK(contains(message, "recipes/data/nonsense.csv"));
  CHECK(contains(message, "share/trainrun/recipes/data/nonsense.csv"));
}

// --- rows in memory

TEST_CASE("bytes become the floats that PyTorch's division gives, and a row that is not there is its error") {
  struct Bytes : TensorDataset {
    explicit Bytes(double divisor) {
      set_field("image", at::arange(256, at::kByte).repeat({3, 1}) + at::arange(3, at::kByte).view({3, 1}), divisor);
    }
    DatasetInfo info() const override { return {}; }
    void open() override {}
  };
  for (const double divisor : {255.0, 16.0, 7.0, 3.5}) {
    const Bytes data(divisor);
    const at::Tensor expected = (at::arange(256, at::kByte) + 2).to(at::kFloat).div(divisor);
    const at::Tensor found = data.get(at::tensor({2, 0, 2}, at::kLong)).at("image");
    CHECK(found.sizes() == at::IntArrayRef({3, 256}));
    CHECK(found[0].equal(expected));
    CHECK(found[2].equal(expected));
    CHECK(found[1].equal(at::arange(256, at::kByte).to(at::kFloat).div(divisor)));
    CHECK(data.get(at::tensor({0, 2, 1, 2}, at::kLong).slice(0, 0, 4, 3)).at("image")[1].equal(expected));
    CHECK(data.get(at::tensor({2}, at::kInt)).at("image")[0].equal(expected));
    CHECK(data.get(at::empty({0}, at::kLong)).at("image").sizes() == at::IntArrayRef({0, 256}));
    CHECK_THROWS_AS(data.get(at::tensor({3}, at::kLong)), c10::Error);
    CHECK_THROWS_AS(data.get(at::tensor({-4}, at::kLong)), c10::Error);
  }
}

// --- Digits

// What Python says of the same file: the split drawn by torch.randperm as Digits documents it, and the sum over its
// images of (place in the split, from 1) * (sum of the image's pixels).
struct ExpectedDigits {
  std::string options;
  std::string split;
  int64_t size;
  int64_t checksum;
};

TEST_CASE("Digits draws the same split as the same algorithm in Python") {
  const ExpectedDigits expected[] = {
      {"", "test", 359, 20027462},
      {"", "train", 1438, 323245660},
      {R"(, "seed": 3, "test_fraction": 0.5)", "test", 901, 126514426},
      {R"(, "seed": 3, "test_fraction": 0.5)", "train", 896, 125571453},
  };
  for (const ExpectedDigits& one : expected) {
    const std::string recipe = R"({"type": "Digits", "split": ")" + one.split + "\"" + one.options + "}";
    CHECK(dataset(recipe)->info().num_samples == one.size);  // before any file is read
    const auto data = open_dataset(recipe);
    CHECK(data->size() == one.size);
    const at::Tensor pixels = all_of(*data).at("image").mul(16).to(at::kLong).sum({1, 2, 3});
    CHECK((pixels * at::arange(1, one.size + 1)).sum().item<int64_t>() == one.checksum);
    check_info(*data);
  }
}

TEST_CASE("Digits is stratified, in [0, 1], and its splits share no image") {
  const Batch train = all_of(*open_dataset(R"({"type": "Digits", "split": "train"})"));
  const Batch test = all_of(*open_dataset(R"({"type": "Digits", "split": "test"})"));
  CHECK((test.at("label").bincount() == at::tensor({36, 36, 35, 37, 36, 36, 36, 36, 35, 36})).all().item<bool>());
  CHECK((train.at("label").bincount() + test.at("label").bincount() ==
         at::tensor({178, 182, 177, 183, 181, 182, 181, 179, 174, 180}))
            .all()
            .item<bool>());
  CHECK(train.at("image").min().item<float>() == 0);
  CHECK(train.at("image").max().item<float>() == 1);
  const at::Tensor both = at::cat({train.at("image"), test.at("image")});
  CHECK(both.mul(16).sum().item<double>() == 561718);  // Python's sum of the file
}

TEST_CASE("Digits refuses a split that leaves nothing") {
  const std::string message =
      message_of<RecipeError>([] { dataset(R"({"type": "Digits", "split": "test", "test_fraction": 0.001})"); });
  CHECK_MESSAGE(contains(message, "test_fraction: leaves no images to test"), message);
  CHECK_THROWS_AS(dataset(R"({"type": "Digits", "split": "test", "test_fraction": 1.0})"), RecipeError);
  CHECK_THROWS_AS(dataset(R"({"type": "Digits"})"), RecipeError);
}

// --- MNIST and its family

std::string big_endian(uint32_t number) {
  return {static_cast<char>(number >> 24), static_cast<char>(number >> 16), static_cast<char>(number >> 8),
          static_cast<char>(number)};
}

/// An IDX file of bytes that count up, from 0 to `below` - 1 again and again.
std::string idx(const std::vector<uint32_t>& sizes, int below, unsigned char type = 8) {
  std::string content = {0, 0, static_cast<char>(type), static_cast<char>(sizes.size())};
  size_t total = 1;
  for (const uint32_t size : sizes) {
    content += big_endian(size);
    total *= size;
  }
  for (size_t i = 0; i < total; ++i) content += static_cast<char>(i % static_cast<size_t>(below));
  return content;
}

struct MnistFixture {
  TemporaryFolder folder;
  const std::string images = idx({20, 28, 28}, 256);
  const std::string labels = idx({20}, 10);

  std::string recipe(const std::string& type = "MNIST") const {
    return R"({"type": ")" + type + R"(", "split": "test", "root": ")" + folder.path() + R"("})";
  }
  /// The error of reading these two files.
  std::string error_of(const std::string& image_file, const std::string& label_file,
                       const std::string& suffix = "") const {
    folder.write("t10k-images-idx3-ubyte" + suffix, image_file);
    folder.write("t10k-labels-idx1-ubyte" + suffix, label_file);
    return message_of<DataError>([&] { open_dataset(recipe()); });
  }
};

TEST_CASE_FIXTURE(MnistFixture,
                  "MNIST reads plain and .gz files, its own folder and torchvision's, as float32 in [0, 1]") {
  std::string type = "MNIST";
  SUBCASE("plain") {
    folder.write("t10k-images-idx3-ubyte", images);
    folder.write("t10k-labels-idx1-ubyte", labels);
  }
  SUBCASE("gzip") {
    folder.write("t10k-images-idx3-ubyte.gz", gzip(images));
    folder.write("t10k-labels-idx1-ubyte.gz", gzip(labels));
  }
  SUBCASE("torchvision") {
    type = "KMNIST";
    folder.write("KMNIST/raw/t10k-images-idx3-ubyte", images);
    folder.write("KMNIST/raw/t10k-labels-idx1-ubyte.gz", gzip(labels));
  }
  const auto data = open_dataset(recipe(type));
  const Batch batch = all_of(*data);
  CHECK(batch.at("image").sizes() == at::IntArrayRef({20, 1, 28, 28}));
  CHECK((batch.at("label").scalar_type() == at::kLong));
  CHECK(batch.at("label")[13].item<int64_t>() == 3);
  const at::Tensor flat = batch.at("image").flatten();
  for (int64_t i = 0; i < 256; ++i) {  // torchvision's ToTensor: a division in float32
    CHECK(flat[i].item<float>() == static_cast<float>(i) / 255.0F);
  }
}

TEST_CASE_FIXTURE(MnistFixture, "MNIST reads gzip files of several members, as gunzip does") {
  folder.write("t10k-images-idx3-ubyte.gz", gzip(images.substr(0, 1000)) + gzip(images.substr(1000)));
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(labels) + gzip(""));
  const at::Tensor flat = all_of(*open_dataset(recipe())).at("image").flatten();
  for (int64_t i = 0; i < 256; ++i) CHECK(flat[i].item<float>() == static_cast<float>(i) / 255.0F);
}

TEST_CASE("MNIST knows its shapes and sizes without a file") {
  for (const std::string type : {"MNIST", "FashionMNIST", "KMNIST"}) {
    const auto of_split = [&](const std::string& split) {
      return dataset(R"({"type": ")" + type + R"(", "root": "nowhere", "split": ")" + split + R"("})")->info();
    };
    CHECK(of_split("train").num_samples == 60000);
    CHECK(of_split("test").num_samples == 10000);
    CHECK(of_split("test").fields[0].shape == std::vector<int64_t>{1, 28, 28});
    CHECK(of_split("test").target == "label");
    CHECK(of_split("test").find("label")->num_classes == 10);
  }
}

TEST_CASE_FIXTURE(MnistFixture, "a missing MNIST file is an error that says where it was looked for and what to do") {
  const std::string message =
      message_of<DataError>([] { open_dataset(R"({"type": "MNIST", "split": "train", "root": "no/such/folder"})"); });
  for (const std::string part : {"MNIST: no file train-images-idx3-ubyte", "there is no folder no/such/folder",
                                 "no/such/folder/train-images-idx3-ubyte.gz",
                                 "no/such/folder/MNIST/raw/train-images-idx3-ubyte", "download: true"}) {
    CHECK_MESSAGE(contains(message, part), message);
  }
  folder.write("t10k-images-idx3-ubyte", images);
  const std::string labels_missing = message_of<DataError>([&] { open_dataset(recipe()); });
  CHECK(contains(labels_missing, "no file t10k-labels-idx1-ubyte"));
  CHECK_FALSE(contains(labels_missing, "there is no folder"));
}

TEST_CASE_FIXTURE(MnistFixture, "a damaged MNIST file is an error that names it and says what is wrong") {
  const std::string image_path = folder / "t10k-images-idx3-ubyte";
  const std::string label_path = folder / "t10k-labels-idx1-ubyte";
  const auto check = [](const std::string& message, const std::string& path, const std::string& cause) {
    CHECK_MESSAGE(message.rfind(path, 0) == 0, message);
    CHECK_MESSAGE(contains(message, cause), message);
  };
  SUBCASE("cut off") {
    check(error_of(images.substr(0, 1000), labels), image_path, "15680 bytes expected, 984 found");
    check(error_of(images.substr(0, 10), labels), image_path, "ends within the IDX header");
    check(error_of("", labels), image_path, "ends within the IDX header");
    check(error_of(images, labels.substr(0, 20)), label_path, "20 bytes expected, 12 found");
  }
  SUBCASE("too long") { check(error_of(images + "x", labels), image_path, "more bytes than its header announces"); }
  SUBCASE("not IDX") {
    check(error_of("<html>sorry</html>", labels), image_path,
          "not an IDX file: it begins with 3c68746d, expected 00000803");
    check(error_of(idx({20, 28, 28}, 9, 13), labels), image_path, "another type of numbers");
  }
  SUBCASE("swapped") { check(error_of(labels, images), image_path, "of 1 dimensions, expected 3 (images)"); }
  SUBCASE("a header that asks for all memory") {
    check(error_of(std::string("\0\0\x08\x03", 4) + std::string(12, '\xff'), labels), image_path, "damaged IDX header");
  }
  SUBCASE("other images") {
    check(error_of(idx({20, 32, 32}, 256), labels), image_path, "images of 32x32 pixels, expected 28x28");
    check(error_of(idx({0, 28, 28}, 256), idx({0}, 10)), image_path, "holds no images");
    check(error_of(images, idx({19}, 10)), image_path, "holds 20 images");
  }
  SUBCASE("labels out of range") {
    check(error_of(images, idx({20}, 12)), label_path, "label 10 (counted from 0) is 10, expected 0 to 9");
  }
  SUBCASE("gzip") {
    const std::string packed = gzip(images);
    check(error_of(packed.substr(0, packed.size() / 2), gzip(labels), ".gz"), image_path + ".gz", "cut off");
    check(error_of(packed.substr(0, packed.size() - 4), gzip(labels), ".gz"), image_path + ".gz", "cut off");
    std::string damaged = packed;
    damaged[damaged.size() - 6] ^= 1;  // of the checksum
    check(error_of(damaged, gzip(labels), ".gz"), image_path + ".gz", "damaged gzip data");
    damaged = packed;
    for (size_t i = 20; i < 60; ++i) damaged[i] = static_cast<char>(0xff);
    check(error_of(damaged, gzip(labels), ".gz"), image_path + ".gz", "damaged gzip data");
  }
  SUBCASE("a folder of that name") {
    std::filesystem::create_directories(image_path);
    const std::string message = message_of<DataError>([&] { open_dataset(recipe()); });
    CHECK_MESSAGE(contains(message, "t10k-labels"), message);
    folder.write("t10k-labels-idx1-ubyte", labels);
    check(message_of<DataError>([&] { open_dataset(recipe()); }), image_path, "found a folder");
  }
}

TEST_CASE("the real MNIST has its published labels, mean and standard deviation") {
  const char* data_folder = std::getenv("TRAINRUN_DATA");
  if (!data_folder || !std::filesystem::exists(std::string(data_folder) + "/mnist")) {
    MESSAGE("skipped: no data: there is no mnist in TRAINRUN_DATA");
    return;
  }
  const std::string root = std::string(R"(, "root": ")") + data_folder + R"(/mnist"})";
  const auto train = open_dataset(R"({"type": "MNIST", "split": "train")" + root);
  const auto test = open_dataset(R"({"type": "MNIST", "split": "test")" + root);
  check_info(*train);
  check_info(*test);
  const Batch batch = all_of(*train);
  CHECK((batch.at("label").slice(0, 0, 10) == at::tensor({5, 0, 4, 1, 9, 2, 1, 3, 1, 4})).all().item<bool>());
  CHECK((all_of(*test).at("label").slice(0, 0, 5) == at::tensor({7, 2, 1, 0, 4})).all().item<bool>());
  CHECK(batch.at("image").mean().item<double>() == doctest::Approx(0.1307).epsilon(0.0005));
  CHECK(batch.at("image").std().item<double>() == doctest::Approx(0.3081).epsilon(0.0005));
}

// --- Parquet, as far as it needs no Arrow: the rest is in tests/parity/parquet_*_test.py

TEST_CASE("what reads Parquet says how to get it where it is not there, and which file asked for it") {
  const TemporaryFolder folder;
  const std::string library = folder / "libtrainrun_arrow.so";
  const auto fault = [&] { return message_of<DataError>([&] { open_arrow_library(library, "rows.parquet"); }); };
  CHECK(fault() ==
        "rows.parquet: Parquet and Arrow files are read and written by a part that this trainrun was built without "
        "(there is no " +
            library + "); run tools/setup --arrow, which fetches what it needs and builds it");
  folder.write("libtrainrun_arrow.so", "not a library");
  CHECK(contains(fault(), "rows.parquet: the libraries for Parquet and Arrow files cannot be opened ("));
  CHECK(contains(fault(),
                 "run tools/setup --arrow, which fetches them, or, where pip installed this trainrun, pip install "
                 "pyarrow=="));
}

TEST_CASE("a file of Arrow is known by its name, and the text in a cell by its kind") {
  for (const char* path : {"a.parquet", "b/c.arrow", ".feather"}) CHECK(is_arrow_file(path));
  for (const char* path : {"a.parquet.gz", "parquet", "a.csv", ""}) CHECK_FALSE(is_arrow_file(path));
  Cell cell;
  const auto fault = [&] { return message_of<DataError>([&] { text_in(cell, "t:1"); }); };
  CHECK(fault() == "t:1: the value is missing, expected a string");
  cell.kind = Cell::Kind::kNumber;
  CHECK(fault() == "t:1: expected a string, found a number");
  cell.kind = Cell::Kind::kObject;
  CHECK(fault() == "t:1: expected a string, found an object");
  cell.kind = Cell::Kind::kText;
  cell.text = "words";
  CHECK(text_in(cell, "t:1") == "words");
}

}  // namespace
}  // namespace trainrun
