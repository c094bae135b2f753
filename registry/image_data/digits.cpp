#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "registry/data/data_file.h"
#include "registry/data/data_files.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

constexpr const char* kFile = "recipes/data/digits.csv.gz";
constexpr int64_t kDigitsSide = 8;
constexpr int64_t kNumPixels = kDigitsSide * kDigitsSide;
constexpr int kMostInk = 16;  // pixels are counts of 16 points
constexpr size_t kNumDigitsClasses = 10;
/// Images of each digit in the file: what makes the size of a split known before the file is read.
constexpr std::array<int64_t, kNumDigitsClasses> kCounts = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
constexpr int64_t kNumImages = 1797;

struct Samples {
  std::vector<uint8_t> pixels;  // [N, 64]
  std::vector<int64_t> labels;
};

/// One line: 64 pixels and the digit.
void read_line(const std::string& line, const std::string& where, Samples& samples) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (int64_t column = 0; column <= kNumPixels; ++column) {
    const bool is_label = column == kNumPixels;
    int value = -1;
    const auto result = std::from_chars(at, end, value);
    const bool separated = is_label ? result.ptr == end : result.ptr != end && *result.ptr == ',';
    const int most = is_label ? static_cast<int>(kNumDigitsClasses) - 1 : kMostInk;
    if (result.ec != std::errc() || !separated || value < 0 || value > most) {
      throw DataError(where + ": column " + std::to_string(column + 1) + " is not a number from 0 to " +
                      std::to_string(most));
    }
    at = result.ptr + 1;
    if (is_label) {
      samples.labels.push_back(value);
    } else {
      samples.pixels.push_back(static_cast<uint8_t>(value));
    }
  }
}

Samples read_digits(const std::string& path) {
  DataFile file(path);
  std::string text(1 << 20, '\0');
  text.resize(file.read(text.data(), text.size()));
  Samples samples;
  size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    read_line(text.substr(begin, end - begin), path + ":" + std::to_string(line), samples);
    begin = end + 1;
  }
  std::array<int64_t, kNumDigitsClasses> counts{};
  for (const int64_t label : samples.labels) ++counts[static_cast<size_t>(label)];
  if (counts != kCounts) {
    throw DataError(path + ": not the " + std::to_string(kNumImages) +
                    " digits that come with trainrun; it was changed");
  }
  return samples;
}

struct Digits {
  std::string split;
  double test_fraction = 0.2;
  int64_t seed = 0;

  static void describe(Fields<Digits>& f) {
    f.required("split", &Digits::split).one_of({"train", "test"}).doc("which part of the images");
    f.optional("test_fraction", &Digits::test_fraction)
        .greater_than(0)
        .less_than(1)
        .doc("share of each class's images that is for testing");
    f.optional("seed", &Digits::seed)
        .at_least(0)
        .doc("seed of the draw that splits the images; the same for both splits");
  }
  void check(Checker& checker) const {
    if (num_samples() == 0) checker.fail("test_fraction", "leaves no images to " + split);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;

  /// Of `count` images of one class: the test images among them.
  int64_t num_test(int64_t count) const { return std::llround(test_fraction * static_cast<double>(count)); }
  bool is_train() const { return split == "train"; }
  int64_t num_samples() const {
    int64_t test = 0;
    for (const int64_t count : kCounts) test += num_test(count);
    return is_train() ? kNumImages - test : test;
  }
};

/// Stratified: of each class, in the order 0 to 9, the first `num_test` of torch.randperm(count) are test images, the
/// others train images, one generator seeded `seed` giving all ten permutations. Both splits keep the order of the
/// file.
std::vector<int64_t> draw_split(const std::vector<int64_t>& labels, const Digits& options) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(options.seed));
  std::vector<int64_t> chosen;
  for (size_t digit = 0; digit < kNumDigitsClasses; ++digit) {
    std::vector<int64_t> rows;
    for (size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] == static_cast<int64_t>(digit)) rows.push_back(static_cast<int64_t>(row));
    }
    const at::Tensor order = at::randperm(static_cast<int64_t>(rows.size()), generator, at::kLong);
    const int64_t num_test = options.num_test(static_cast<int64_t>(rows.size()));
    for (int64_t i = 0; i < order.numel(); ++i) {
      if ((i >= num_test) == options.is_train()) {
        chosen.push_back(rows[static_cast<size_t>(order.const_data_ptr<int64_t>()[i])]);
      }
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

class DigitsDataset : public TensorDataset {
 public:
  explicit DigitsDataset(Digits options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    info.fields = {{"image", {1, kDigitsSide, kDigitsSide}, at::kFloat, std::nullopt},
                   {"label", {}, at::kLong, static_cast<int64_t>(kNumDigitsClasses)}};
    info.target = "label";
    info.num_samples = options_.num_samples();
    return info;
  }

  void open() override {
    const Samples samples = read_digits(shipped_file(kFile));
    const at::Tensor rows = at::tensor(draw_split(samples.labels, options_), at::kLong);
    const at::Tensor pixels = at::tensor(at::ArrayRef<uint8_t>(samples.pixels), at::kByte);
    set_field("image", pixels.view({-1, 1, kDigitsSide, kDigitsSide}).index_select(0, rows), kMostInk);
    set_field("label", at::tensor(samples.labels, at::kLong).index_select(0, rows));
  }

 private:
  Digits options_;
};

std::unique_ptr<Dataset> Digits::build(const DatasetInputs&) const { return std::make_unique<DigitsDataset>(*this); }

}  // namespace

void add_digits(DatasetRegistry& datasets) {
  datasets.add<Digits>("Digits", "handwritten digits of UCI, 8x8, 1,797 images, 10 classes; comes with trainrun");
}

}  // namespace trainrun
