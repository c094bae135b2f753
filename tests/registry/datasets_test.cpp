#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "registry/data/data_files.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/kinds/dataset.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"

namespace trainrun {
namespace {

using test::contains;
using test::dataset;
using test::gzip;
using test::message_of;
using test::open_dataset;

Batch all_of(const Dataset& data) { return data.get(at::arange(data.size(), at::kLong)); }

/// Does `info()` say what `get` gives?
void check_info(const Dataset& data) {
  const DatasetInfo info = data.info();
  const Batch batch = data.get(at::arange(std::min<int64_t>(data.size(), 3), at::kLong));
  REQUIRE(batch.fields().size() == info.fields.size());
  for (size_t i = 0; i < info.fields.size(); ++i) {
    const at::Tensor& tensor = batch.fields()[i].tensor;
    CHECK(batch.fields()[i].name == info.fields[i].name);
    const bool is_wide = tensor.scalar_type() == at::kDouble;  // until transforms have scaled it
    CHECK(((is_wide ? at::kFloat : tensor.scalar_type()) == info.fields[i].dtype));
    CHECK(tensor.sizes().slice(1) == at::IntArrayRef(info.fields[i].shape));
    CHECK(tensor.size(0) == std::min<int64_t>(data.size(), 3));
  }
  CHECK(info.find(info.target));
  if (info.num_samples) CHECK(*info.num_samples == data.size());
}

// --- files that come with trainrun

TEST_CASE("a file that comes with trainrun is found; for one that does not, the places tried are named") {
  CHECK(std::filesystem::exists(shipped_file("recipes/data/digits.csv.gz")));
  const std::string message = message_of<DataError>([] { shipped_file("recipes/data/nonsense.csv"); });
  CHECK(contains(message, "recipes/data/nonsense.csv"));
  CHECK(contains(message, "share/trainrun/recipes/data/nonsense.csv"));
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
        "rows.parquet: Parquet and Arrow files are read by a part that this trainrun was built without (there is no " +
            library + "); run tools/setup --arrow, which fetches what it needs and builds it");
  folder.write("libtrainrun_arrow.so", "not a library");
  CHECK(contains(fault(), "rows.parquet: the libraries that read Parquet and Arrow files cannot be opened ("));
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

// --- CSV

struct CsvFixture {
  TemporaryFolder folder;
  std::string path = folder / "table.csv";

  /// `options` in JSON, after a comma.
  std::string recipe(const std::string& options = "") const {
    return R"({"type": "CSV", "path": ")" + path + R"(", "label": "y")" + options + "}";
  }
  Batch read(const std::string& content, const std::string& options = "") const {
    folder.write("table.csv", content);
    const auto data = open_dataset(recipe(options));
    check_info(*data);
    return all_of(*data);
  }
  std::string error_of(const std::string& content, const std::string& options = "") const {
    folder.write("table.csv", content);
    return message_of<DataError>([&] { open_dataset(recipe(options)); });
  }
};

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous().flatten();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

TEST_CASE_FIXTURE(CsvFixture, "CSV gives columns as features and a class as label") {
  const Batch batch = read("a,y,b\n1,0,2.5\n-3e2,2,+4\n");
  CHECK(batch.at("features").sizes() == at::IntArrayRef({2, 2}));
  CHECK(floats_of(batch.at("features")) == std::vector<float>{1, 2.5, -300, 4});
  CHECK((batch.at("label").scalar_type() == at::kLong));
  CHECK(floats_of(batch.at("label")) == std::vector<float>{0, 2});
}

TEST_CASE_FIXTURE(CsvFixture, "CSV takes the columns named, in the order named") {
  const Batch batch = read("a,y,b,c\n1,0,2,x\n", R"(, "features": ["b", "a"])");
  CHECK(floats_of(batch.at("features")) == std::vector<float>{2, 1});
}

TEST_CASE_FIXTURE(CsvFixture, "CSV gives the label of a regression as [N, 1] float32") {
  const Batch batch = read("a,y\n1,0.5\n2,-7\n", R"(, "task": "regression")");
  CHECK(batch.at("label").sizes() == at::IntArrayRef({2, 1}));
  CHECK(floats_of(batch.at("label")) == std::vector<float>{0.5, -7});
}

TEST_CASE_FIXTURE(CsvFixture, "CSV reads what RFC 4180 allows, and what programs write") {
  const std::vector<float> expected = {1, 2, 3, 4};
  const auto features = [&](const std::string& content, const std::string& options = "") {
    return floats_of(read(content, options).at("features"));
  };
  CHECK(features("a,b,y\r\n1,2,0\r\n3,4,1\r\n") == expected);  // CRLF
  CHECK(features("a,b,y\n1,2,0\n3,4,1") == expected);          // no end of line at the end
  CHECK(features("\xEF\xBB\xBF"
                 "a,b,y\n1,2,0\n3,4,1\n") == expected);         // byte-order mark
  CHECK(features("\na,b,y\n1,2,0\n\n3,4,1\n\n") == expected);   // blank lines
  CHECK(features("a,b,y\n 1 ,\t2,0\n3 , 4,1 \n") == expected);  // blanks around numbers
  CHECK(features("\"a\",\"b\",\"y\"\n\"1\",2,\"0\"\n3,\"4\",1\n") == expected);
  CHECK(features("a;b;y\n1;2;0\n3;4;1\n", R"(, "delimiter": ";")") == expected);
  CHECK(features("a\tb\ty\n1\t2\t0\n3\t4\t1\n", R"(, "delimiter": "\t")") == expected);
  CHECK(features("\"a \"\"q\"\", and\nmore\",b,y\n1,2,0\n3,4,1\n", R"(, "features": ["a \"q\", and\nmore", "b"])") ==
        expected);
  CHECK(features(gzip("a,b,y\n1,2,0\n3,4,1\n")) == expected);
  CHECK(floats_of(read("a,y\n1,2.0\n2,1e1\n").at("label")) == std::vector<float>{2, 10});  // whole numbers
}

TEST_CASE_FIXTURE(CsvFixture,
                  "CSV is read in its encoding, also where a character lies across two pieces of the file") {
  constexpr int kRows = 100'000;
  std::string utf8 = "a,y\n";
  std::string latin1 = utf8;
  std::string utf16 = "\xFE\xFF";
  for (const char c : utf8) utf16 += {'\0', c};
  for (int i = 0; i < kRows; ++i) {
    utf8 += "\xC3\xA4,1\n";  // ä
    latin1 += "\xE4,1\n";
    utf16 += std::string(
        "\0\xE4\0,\0"
        "1\0\n",
        8);
  }
  const std::string category = R"(, "columns": {"a": "category"})";
  const auto categories = [&](const std::string& content, const std::string& encoding) {
    folder.write("table.csv", content);
    const auto data = open_dataset(recipe(category + R"(, "encoding": ")" + encoding + "\""));
    data->learn(at::arange(data->size(), at::kLong));
    CHECK(data->size() == kRows);
    return data->learnt().at("a").at("categories").get<std::vector<std::string>>();
  };
  const std::vector<std::string> expected = {"\xC3\xA4"};
  CHECK(categories(utf8, "utf-8") == expected);
  CHECK(categories(latin1, "latin-1") == expected);
  CHECK(categories(utf16, "utf-16") == expected);
  const std::string message = error_of(utf8 + "\xC3", category);
  CHECK_MESSAGE(contains(message, ":100002: byte 1 of the line, 0xC3 at offset 500004 of the text, is not UTF-8"),
                message);
}

TEST_CASE_FIXTURE(CsvFixture, "CSV without a header names columns by number") {
  folder.write("table.csv", "1,0,2\n3,1,4\n");
  const auto data = open_dataset(R"({"type": "CSV", "path": ")" + path + R"(", "label": "1", "header": false})");
  check_info(*data);
  CHECK(floats_of(all_of(*data).at("features")) == std::vector<float>{1, 2, 3, 4});
  CHECK(floats_of(all_of(*data).at("label")) == std::vector<float>{0, 1});
}

TEST_CASE_FIXTURE(CsvFixture,
                  "CSV reads numbers with a decimal comma and marks between thousands, and leaves categories") {
  const std::string german = R"(, "delimiter": ";", "decimal": ",", "thousands": ".")";
  const std::vector<float> expected = {0.5, 1234.5, -1234567.25, 1e3};
  CHECK(floats_of(read("a;y\n0,5;0\n1.234,5;1\n-1.234.567,25;2\n1e3;3\n", german).at("features")) == expected);
  CHECK(floats_of(read("a;y\n1;1.000\n2;2\n", german).at("label")) == std::vector<float>{1000, 2});
  const std::string american = R"(, "thousands": ",")";
  CHECK(floats_of(read("a,y\n\"1,234.5\",0\n.5,1\n", american).at("features")) == std::vector<float>{1234.5, 0.5});
  const std::string words = german + R"(, "columns": {"v": {"type": "category", "categories": ["1.0,1", "10,1"]}})";
  CHECK(floats_of(read("v;y\n1.0,1;0\n10,1;1\n", words).at("v")) == std::vector<float>{0, 1});  // not numbers
  CHECK(contains(error_of("a;y\n0.5;0\n", R"(, "delimiter": ";", "decimal": ",")"), ":2:a: '0.5' is not a number"));
}

TEST_CASE_FIXTURE(CsvFixture, "CSV knows its shapes from `features`, or else from the first line alone") {
  for (const char* options : {"", R"(, "features": ["a"])"}) {
    const std::string message = message_of<DataError>([&] { dataset(recipe(options))->info(); });
    CHECK_MESSAGE(contains(message, path + ": cannot open: No such file"), message);
  }
  folder.write("table.csv", "a,b,y\nnot,a,\"table");
  CHECK(dataset(recipe(R"(, "features": ["a", "b"], "num_classes": 3)"))->info().fields[0].shape ==
        std::vector<int64_t>{2});
  CHECK(dataset(recipe(R"(, "features": ["a"], "num_classes": 3)"))->info().fields[1].num_classes == 3);
  CHECK(dataset(recipe())->info().fields[0].shape == std::vector<int64_t>{2});
}

TEST_CASE_FIXTURE(CsvFixture, "an error of a CSV file names file, line and column and shows the text") {
  const auto check = [&](const std::string& content, const std::string& expected, const std::string& options = "") {
    const std::string message = error_of(content, options);
    CHECK_MESSAGE(message == path + expected, message);
  };
  check("a,y\n1,0\nx,1\n", ":3:a: 'x' is not a number; write columns: {a: category}");
  check("a,y\n1,0\n\n,1\n", ":4:a: the value is missing; write columns: {a: {missing: median}}");
  check("a,y\n1,0\nnan,1\n", ":3:a: the value is missing ('nan'); write columns: {a: {missing: median}}");
  check("a,y\n1e99,0\n", ":2:a: '1e99' is too large or too small");
  check("a,y\n1 2,0\n", ":2:a: '1 2' is not a number; write columns: {a: category}");
  check("a,y\n1,\n", ":2:y: the value is missing");
  check("a,y\n1,0.5\n",
        ":2:y: '0.5' is not a class, which is an integer from 0; to predict numbers write task: regression");
  check("a,y\n1,cat\n", ":2:y: 'cat' is not a class, which is an integer from 0; write columns: {'y': category}");
  check("a,y\n1,-1\n", ":2:y: class -1 is not 0 or more; write columns: {'y': category}");
  check("a,y\n1,3\n", ":2:y: class 3 is not from 0 to 2", R"(, "num_classes": 3)");
  check("a,y\n1,high\n", ":2:y: 'high' is not a number", R"(, "task": "regression")");
  check("a,y\n1,0\n1,2,3\n",
        ":3: 3 columns, the first line has 2; put a text that holds the delimiter in quotation marks");
  check("a,y\n1,0\n1\n", ":3: 1 columns, the first line has 2");
  check("b,a,y\n\"1\n\n\",1,0\n\"2", ":5: a quoted field that begins in this record is never closed",
        R"(, "features": ["a"])");
  check("a,y\n\"1\"x,0\n", ":2: column 1: text after a closing quotation mark");
  check("a,b\n1,0\n", ":1:y: there is no such column; known: a, b");
  check("alpha,y\n1,0\n", ":1:alpa: there is no such column; did you mean alpha?", R"(, "features": ["alpa"])");
  check("y,a,y\n1,0,1\n", ":1:y: two columns are called 'y'");
  check("y\n1\n", ": has no column but the label 'y'");
  check("", ": is empty");
  check("a,y\n", ": has no rows below the names of its columns");
  check(gzip("a,y\n1,0\n2,1\n3,1\n").substr(0, 25), ": the file is cut off in the midst of its gzip data");
}

TEST_CASE_FIXTURE(CsvFixture, "parameters of CSV that do not fit together are errors of the recipe") {
  const auto check = [&](const std::string& options, const std::string& expected) {
    const std::string message = message_of<RecipeError>([&] { dataset(recipe(options)); });
    CHECK_MESSAGE(contains(message, expected), message);
  };
  check(R"(, "delimiter": "::")", "delimiter: must be one character");
  check(R"(, "delimiter": "\"")", "delimiter: must be one character");
  check(R"(, "decimal": ";")", "decimal: ';' is not one of ., ,");
  check(R"(, "decimal": ",", "thousands": ",")", "thousands: is the decimal separator as well; the two must differ");
  check(R"(, "features": [])", "features: expected at least one column");
  check(R"(, "features": ["a", "y"])", "features: the label 'y' may not be a feature");
  check(R"(, "features": ["a", "a"])", "features: 'a' is there twice");
  check(R"(, "task": "regression", "num_classes": 3)", "num_classes: is for the task classification");
  check(R"(, "task": "regresion")", "did you mean regression?");
}

TEST_CASE("the tables that come with trainrun are read whole") {
  for (const auto& [name, rows] : {std::pair{"train", 800}, std::pair{"eval", 200}}) {
    const auto data = open_dataset(R"({"type": "CSV", "path": ")" +
                                   shipped_file("recipes/data/regression_" + std::string(name) + ".csv") +
                                   R"(", "label": "y", "task": "regression"})");
    CHECK(data->size() == rows);
    CHECK(data->info().fields[0].shape == std::vector<int64_t>{10});
  }
}

// --- Synthetic

TEST_CASE("Synthetic gives what its shape says: images, features or token ids") {
  const auto field = [](const std::string& options) {
    const auto data = open_dataset(R"({"type": "Synthetic", "num_samples": 5, )" + options + "}");
    check_info(*data);
    return data->info().fields[0].name + "/" + data->info().target;
  };
  CHECK(field(R"("shape": [3, 9, 10])") == "image/label");
  CHECK(field(R"("shape": [7])") == "features/label");
  CHECK(field(R"("shape": [12, 5], "task": "regression", "num_targets": 3)") == "features/label");
  CHECK(field(R"("shape": [16], "vocab_size": 100)") == "input_ids/labels");
  CHECK(field(R"("shape": [16], "vocab_size": 3, "task": "regression")") == "input_ids/labels");
}

TEST_CASE("Synthetic's sample i is the same whatever is asked for, and however many samples there are") {
  for (const std::string options :
       {R"("shape": [1, 6, 6])", R"("shape": [8], "task": "regression")", R"("shape": [8], "vocab_size": 50)"}) {
    const auto small = open_dataset(R"({"type": "Synthetic", "num_samples": 10, )" + options + "}");
    const auto large = open_dataset(R"({"type": "Synthetic", "num_samples": 1000, )" + options + "}");
    const auto other = open_dataset(R"({"type": "Synthetic", "num_samples": 10, "seed": 1, )" + options + "}");
    const Batch a = small->get(at::tensor({7, 3, 7}, at::kLong));
    const Batch b = large->get(at::arange(20, at::kLong));
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor& of_a = a.fields()[i].tensor;
      const at::Tensor& of_b = b.fields()[i].tensor;
      CHECK((of_a[0] == of_b[7]).all().item<bool>());
      CHECK((of_a[1] == of_b[3]).all().item<bool>());
      CHECK((of_a[2] == of_b[7]).all().item<bool>());
    }
    CHECK_FALSE((other->get(at::arange(10, at::kLong)).fields()[0].tensor == b.fields()[0].tensor.slice(0, 0, 10))
                    .all()
                    .item<bool>());
    CHECK_THROWS_AS(small->get(at::tensor({10}, at::kLong)), Error);
  }
}

TEST_CASE("Synthetic's numbers have mean 0, its classes are drawn alike often, its tokens stay in the vocabulary") {
  const auto data =
      open_dataset(R"({"type": "Synthetic", "num_samples": 20000, "shape": [20], "num_classes": 4, "noise": 0})");
  const Batch batch = all_of(*data);
  CHECK(batch.at("label").bincount().min().item<int64_t>() > 4700);  // 5000 expected, standard deviation 61
  CHECK(batch.at("label").max().item<int64_t>() == 3);
  const auto noise =
      open_dataset(R"({"type": "Synthetic", "num_samples": 20000, "shape": [20], "task": "regression"})");
  const Batch plain = all_of(*noise);
  CHECK(std::abs(plain.at("features").mean().item<double>()) < 0.01);
  CHECK(std::abs(plain.at("features").var().item<double>() - 1) < 0.01);
  const auto text = open_dataset(R"({"type": "Synthetic", "num_samples": 2000, "shape": [30], "vocab_size": 11})");
  const Batch tokens = all_of(*text);
  CHECK(tokens.at("input_ids").min().item<int64_t>() == 0);
  CHECK(tokens.at("input_ids").max().item<int64_t>() == 10);
}

/// Loss of a linear model on evaluation samples after some steps of SGD, over the loss before.
double learned(const std::string& options, double learning_rate) {
  const std::string begin = R"({"type": "Synthetic", "num_samples": 512, )" + options;
  const Batch train = all_of(*open_dataset(begin + R"(, "seed": 0})"));
  const Batch eval = all_of(*open_dataset(begin + R"(, "seed": 1})"));
  const bool regression = train.fields()[1].tensor.is_floating_point();
  const auto input = [](const Batch& batch) {
    const at::Tensor& x = batch.fields()[0].tensor;
    if (x.is_floating_point()) return x.flatten(1);
    return torch::one_hot(x, 64).sum(1).to(at::kFloat);  // a bag of tokens
  };
  torch::manual_seed(0);
  const at::Tensor train_input = input(train);
  const at::Tensor eval_input = input(eval);
  torch::nn::Linear model(train_input.size(1), regression ? train.fields()[1].tensor.size(1) : 10);
  const auto loss = [&](const at::Tensor& x, const at::Tensor& target) {
    const at::Tensor output = model->forward(x);
    return regression ? at::mse_loss(output, target) : at::cross_entropy_loss(output, target);
  };
  const double before = loss(eval_input, eval.fields()[1].tensor).item<double>();
  torch::optim::SGD sgd(model->parameters(), learning_rate);
  for (int step = 0; step < 200; ++step) {
    sgd.zero_grad();
    loss(train_input, train.fields()[1].tensor).backward();
    sgd.step();
  }
  return loss(eval_input, eval.fields()[1].tensor).item<double>() / before;
}

TEST_CASE("Synthetic can be learned: what a model learns from one seed holds for another") {
  CHECK(learned(R"("shape": [1, 8, 8], "noise": 1)", 0.1) < 0.3);
  CHECK(learned(R"("shape": [32])", 0.1) < 0.3);
  CHECK(learned(R"("shape": [32], "task": "regression", "num_targets": 2)", 0.1) < 0.1);
  CHECK(learned(R"("shape": [40], "vocab_size": 64)", 0.05) < 0.5);
  CHECK(learned(R"("shape": [40], "vocab_size": 64, "task": "regression")", 0.01) < 0.5);
}

TEST_CASE("Synthetic refuses an empty or a huge shape") {
  CHECK_THROWS_AS(dataset(R"({"type": "Synthetic", "num_samples": 1, "shape": []})"), RecipeError);
  CHECK_THROWS_AS(dataset(R"({"type": "Synthetic", "num_samples": 1, "shape": [0]})"), RecipeError);
  CHECK_THROWS_AS(dataset(R"({"type": "Synthetic", "num_samples": 1, "shape": [100000, 100000]})"), RecipeError);
}

}  // namespace
}  // namespace trainrun
