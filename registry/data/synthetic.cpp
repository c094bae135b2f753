#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>

#include "registry/kinds/dataset.h"
#include "registry/language/splitmix.h"

namespace trainrun {
namespace {

// What a number is drawn for: part of the key, so that no two draws share their numbers.
enum class Draw : uint64_t { kClass = 1, kInput, kPattern, kFavourite, kWeight, kNoise };

/// The random bits of one key; numbers come by key instead of by turn, so sample i is the same whatever was drawn
/// before.
uint64_t bits(uint64_t seed, Draw draw, uint64_t a, uint64_t b = 0) {
  return splitmix64(splitmix64(splitmix64(seed ^ static_cast<uint64_t>(draw) << 56) + a) + b);
}

/// Uniform with mean 0 and variance 1.
float centred(uint64_t random) {
  constexpr auto kScale = static_cast<float>(2 * std::numbers::sqrt3 / (1 << 24));
  return static_cast<float>(static_cast<int32_t>(random >> 40) - (1 << 23)) * kScale;
}

/// Uniform in 0 … below - 1.
int64_t integer(uint64_t random, int64_t below) {
  return static_cast<int64_t>(
      static_cast<uint64_t>((static_cast<unsigned __int128>(random) * static_cast<uint64_t>(below)) >> 64));
}

struct Synthetic {
  int64_t num_samples = 0;
  std::vector<int64_t> shape;
  std::string task = "classification";
  int64_t num_classes = 10;
  int64_t num_targets = 1;
  std::optional<int64_t> vocab_size;
  double noise = 0.1;
  int64_t seed = 0;
  int64_t task_seed = 0;

  static void describe(Fields<Synthetic>& f) {
    f.required("num_samples", &Synthetic::num_samples).at_least(1).doc("number of samples");
    f.required("shape", &Synthetic::shape)
        .not_empty("expected at least one dimension")
        .at_least(1)
        .doc(
            "shape of one sample: [C, H, W] gives the field `image`, other shapes `features`, with a vocabulary "
            "`input_ids`");
    f.optional("task", &Synthetic::task)
        .one_of({"classification", "regression"})
        .doc("a class per sample, [N] int64, or numbers, [N, num_targets] float32");
    f.optional("num_classes", &Synthetic::num_classes).at_least(1).doc("number of classes, for task: classification");
    f.optional("num_targets", &Synthetic::num_targets).at_least(1).doc("number of targets, for task: regression");
    f.optional("vocab_size", &Synthetic::vocab_size)
        .at_least(1)
        .doc("samples are int64 token ids below this, not numbers");
    f.optional("noise", &Synthetic::noise)
        .at_least(0)
        .doc("standard deviation of the noise; that of the learnable signal is 1");
    f.optional("seed", &Synthetic::seed).at_least(0).doc("seed of the samples; use another one for evaluation");
    f.optional("task_seed", &Synthetic::task_seed)
        .at_least(0)
        .doc("seed of the rule to be learned; the same for training and evaluation");
  }
  void check(Checker& checker) const {
    double numel = 1;
    for (const int64_t size : shape) numel *= static_cast<double>(size);
    if (numel > kMostNumbers) checker.fail("shape", "a sample would have more than 2^31 numbers");
  }

  bool is_classification() const { return task == "classification"; }
  std::string input_name() const { return vocab_size ? "input_ids" : shape.size() == 3 ? "image" : "features"; }
  std::string target_name() const { return vocab_size ? "labels" : "label"; }
  int64_t numel() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;

  static constexpr double kMostNumbers = 2147483648.0;
};

/// Makes each sample when it is asked for. What there is to learn:
///   classification, numbers: a pattern per class, the same in blocks of 4 neighbours (4x4 pixels of an image), plus
///   noise; classification, tokens:  half of them are the class's favourites, 8 of the vocabulary, the others any;
///   regression:              a linear function of the sample (of tokens: the sum of a weight each), plus noise.
class SyntheticDataset : public Dataset {
 public:
  explicit SyntheticDataset(Synthetic options)
      : options_(std::move(options)), numel_(options_.numel()), vocab_size_(options_.vocab_size.value_or(0)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    info.fields.push_back(
        {options_.input_name(), options_.shape, options_.vocab_size ? at::kLong : at::kFloat, options_.vocab_size});
    if (options_.is_classification()) {
      info.fields.push_back({options_.target_name(), {}, at::kLong, options_.num_classes});
    } else {
      info.fields.push_back({options_.target_name(), {options_.num_targets}, at::kFloat, std::nullopt});
    }
    info.target = options_.target_name();
    info.num_samples = options_.num_samples;
    return info;
  }

  void open() override {
    if (options_.vocab_size) return;
    block_.resize(static_cast<size_t>(numel_));
    const std::vector<int64_t>& shape = options_.shape;
    const int64_t width = shape.back();
    const int64_t height = shape.size() >= 3 ? shape[shape.size() - 2] : 1;
    const int64_t across = (width + kBlock - 1) / kBlock;
    const int64_t down = (height + kBlock - 1) / kBlock;
    for (int64_t i = 0; i < numel_; ++i) {
      const int64_t plane = i / (width * height);
      const int64_t row = i / width % height;
      block_[static_cast<size_t>(i)] =
          static_cast<uint32_t>((plane * down + row / kBlock) * across + i % width / kBlock);
    }
  }

  int64_t size() const override { return options_.num_samples; }

  Batch get(const at::Tensor& indices) const override {
    const int64_t n = indices.numel();
    const at::Tensor list = indices.contiguous();
    const int64_t* samples = list.const_data_ptr<int64_t>();
    std::vector<int64_t> shape = {n};
    shape.insert(shape.end(), options_.shape.begin(), options_.shape.end());
    Batch batch;
    at::Tensor inputs = at::empty(shape, options_.vocab_size ? at::kLong : at::kFloat);
    at::Tensor targets =
        options_.is_classification() ? at::empty({n}, at::kLong) : at::empty({n, options_.num_targets});
    for (int64_t row = 0; row < n; ++row) {
      if (samples[row] < 0 || samples[row] >= size()) throw Error("no sample " + std::to_string(samples[row]));
      const auto sample = static_cast<uint64_t>(samples[row]);
      if (options_.vocab_size) {
        make_row(sample, inputs.mutable_data_ptr<int64_t>() + row * numel_, targets, row);
      } else {
        make_row(sample, inputs.mutable_data_ptr<float>() + row * numel_, targets, row);
      }
    }
    batch.set(options_.input_name(), std::move(inputs));
    batch.set(options_.target_name(), std::move(targets));
    return batch;
  }

 private:
  static constexpr int64_t kBlock = 4;
  static constexpr int64_t kNumFavourites = 8;

  uint64_t seed() const { return static_cast<uint64_t>(options_.seed); }
  uint64_t task_seed() const { return static_cast<uint64_t>(options_.task_seed); }

  template <class Number>
  void make_row(uint64_t sample, Number* input, at::Tensor& targets, int64_t row) const {
    if (options_.is_classification()) {
      const int64_t label = integer(bits(seed(), Draw::kClass, sample), options_.num_classes);
      targets.mutable_data_ptr<int64_t>()[row] = label;
      fill_of_class(sample, static_cast<uint64_t>(label), input);
    } else {
      fill(sample, input);
      float* target = targets.mutable_data_ptr<float>() + row * options_.num_targets;
      for (int64_t t = 0; t < options_.num_targets; ++t) target[t] = function(sample, static_cast<uint64_t>(t), input);
    }
  }

  // Numbers. The key's first two parts are mixed once a row: one splitmix64 a number.
  void fill(uint64_t sample, float* input) const {
    const uint64_t key = bits(seed(), Draw::kInput, sample);
    for (int64_t i = 0; i < numel_; ++i) input[i] = centred(splitmix64(key + static_cast<uint64_t>(i)));
  }
  void fill_of_class(uint64_t sample, uint64_t label, float* input) const {
    const uint64_t key = bits(seed(), Draw::kInput, sample);
    const uint64_t pattern = bits(task_seed(), Draw::kPattern, label);
    const auto noise = static_cast<float>(options_.noise);
    for (int64_t i = 0; i < numel_; ++i) {
      input[i] = centred(splitmix64(pattern + block_[static_cast<size_t>(i)])) +
                 noise * centred(splitmix64(key + static_cast<uint64_t>(i)));
    }
  }
  float weighted_sum(uint64_t key, const float* input) const {
    double sum = 0;
    for (int64_t i = 0; i < numel_; ++i) {
      sum += static_cast<double>(input[i] * centred(splitmix64(key + static_cast<uint64_t>(i))));
    }
    return static_cast<float>(sum);
  }

  // Token ids.
  void fill(uint64_t sample, int64_t* input) const {
    const uint64_t key = bits(seed(), Draw::kInput, sample);
    for (int64_t i = 0; i < numel_; ++i) {
      input[i] = integer(splitmix64(key + static_cast<uint64_t>(i)), vocab_size_);
    }
  }
  void fill_of_class(uint64_t sample, uint64_t label, int64_t* input) const {
    fill(sample, input);
    const uint64_t key = bits(seed(), Draw::kNoise, sample);
    const uint64_t favourites = bits(task_seed(), Draw::kFavourite, label);
    for (int64_t i = 0; i < numel_; ++i) {
      const int64_t draw = integer(splitmix64(key + static_cast<uint64_t>(i)), 2 * kNumFavourites);
      if (draw >= kNumFavourites) continue;
      input[i] = integer(splitmix64(favourites + static_cast<uint64_t>(draw)), vocab_size_);
    }
  }
  float weighted_sum(uint64_t key, const int64_t* input) const {
    double sum = 0;
    for (int64_t i = 0; i < numel_; ++i) {
      sum += static_cast<double>(centred(splitmix64(key + static_cast<uint64_t>(input[i]))));
    }
    return static_cast<float>(sum);
  }

  template <class Number>
  float function(uint64_t sample, uint64_t target, const Number* input) const {
    const float sum = weighted_sum(bits(task_seed(), Draw::kWeight, target), input);
    const float noise = centred(bits(seed(), Draw::kNoise, sample, target));
    return sum / std::sqrt(static_cast<float>(numel_)) + static_cast<float>(options_.noise) * noise;
  }

  Synthetic options_;
  int64_t numel_;
  int64_t vocab_size_;           // 0 for numbers
  std::vector<uint32_t> block_;  // of each number of a sample: which number of the pattern it shares
};

std::unique_ptr<Dataset> Synthetic::build(const DatasetInputs&) const {
  return std::make_unique<SyntheticDataset>(*this);
}

}  // namespace

void add_synthetic(DatasetRegistry& datasets) {
  datasets.add<Synthetic>("Synthetic", "learnable random samples made from a seed; for tests and benchmarks");
}

}  // namespace trainrun
