#include "registry/tensors/files/tensor_file.h"

#include <algorithm>
#include <limits>

#include "registry/data/ragged_rows.h"
#include "registry/data/sample_lengths.h"
#include "registry/data/views.h"
#include "registry/data/wide_numbers.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/named.h"

namespace trainrun {
namespace {

struct TensorFileOptions {
  std::optional<std::string> path;
  std::optional<Named<std::string>> fields;
  std::string target = "label";
  std::optional<int64_t> num_classes;
  std::optional<std::vector<std::string>> images;
  std::optional<Named<std::string>> sequences;
  double padding = 0;
  std::optional<SplitOptions> split;

  static void describe(Fields<TensorFileOptions>& f) {
    f.optional("path", &TensorFileOptions::path)
        .doc("a .safetensors, .npz or .npy file; its tensors have one row for each sample. Null: fields names files");
    f.optional("fields", &TensorFileOptions::fields)
        .doc(
            "the batch's fields, the model's input first, each with its tensor's name in path, or a file of one "
            "tensor; "
            "null: all of path, under their own names");
    f.optional("target", &TensorFileOptions::target).doc("the field that the loss compares with");
    f.optional("num_classes", &TensorFileOptions::num_classes)
        .at_least(1)
        .doc("number of classes of the target, if it holds classes");
    f.optional("images", &TensorFileOptions::images)
        .doc(
            "the fields of bytes (uint8) that are pixels, given as float32 in [0, 1]; other bytes are numbers, given "
            "as "
            "int64. Null: the first field, or one with more dimensions if these are three or more a sample ([C, H, "
            "W]), "
            "and fields of its shape; not the target");
    f.optional("sequences", &TensorFileOptions::sequences)
        .doc(
            "fields whose samples have different lengths and lie one after another, [sum of the lengths, …], each with "
            "the name of the tensor (or, where fields names files, the file) of their lengths [N], or of where each "
            "begins "
            "and the last ends, [N + 1]. A batch has them in the length of its longest, [N, L, …], and beside them "
            "NAME_mask, [N, L]: 1 where a sample has an item");
    f.optional("padding", &TensorFileOptions::padding).doc("what fills up the sequences shorter than the longest");
    f.optional("split", &TensorFileOptions::split).doc("take a part of the samples, drawn by a seed; null: all");
  }
  void check(Checker& checker) const {
    if (!path && !fields) checker.fail("path", "path or fields must name a file");
    if (fields && fields->entries.empty()) checker.fail("fields", "expected at least one field");
    if (fields && !fields->find(target)) {
      std::vector<std::string> names;
      for (const auto& [name, unused] : fields->entries) names.push_back(name);
      checker.fail("target", "there is no field '" + target + "'" + suggestion(target, names));
    }
    if (is_sequence(target)) checker.fail("sequences", "the target '" + target + "' has one row for each sample");
    for (const auto& [name, unused] : sequences.value_or(Named<std::string>()).entries) {
      if (fields && !fields->find(name)) checker.fail("sequences", "there is no field '" + name + "'");
    }
    for (const std::string& image : images.value_or(std::vector<std::string>())) {
      if (!fields || fields->find(image)) continue;
      std::vector<std::string> names;
      for (const auto& [name, unused] : fields->entries) names.push_back(name);
      checker.fail("images", "there is no field '" + image + "'" + suggestion(image, names));
    }
  }
  bool is_sequence(const std::string& field) const { return sequences && sequences->find(field); }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// Pixels are given as float32 in [0, 1], booleans as bool (the target's as 0 and 1), other integers as int64,
/// other numbers as float32 (in float64 for as long as transforms may still scale them, where float32 would round).
class TensorFileDataset : public TensorDataset {
 public:
  explicit TensorFileDataset(TensorFileOptions options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    for (const Found& field : find_fields()) {
      const TensorFile::Entry& entry = field.entry();
      const bool is_target = field.name == options_.target;
      std::vector<int64_t> shape(entry.shape.begin() + 1, entry.shape.end());
      if (field.lengths) {
        const int64_t longest = std::max<int64_t>(RaggedRows{{}, begins_of(field)}.longest(), 1);
        shape.insert(shape.begin(), longest);  // at most: batches may be shorter
        info.fields.push_back({field.name, shape, given_as(field), std::nullopt});
        info.fields.push_back({mask_name(field.name), {longest}, at::kLong, std::nullopt});
        continue;
      }
      info.fields.push_back({field.name, shape, given_as(field), is_target ? options_.num_classes : std::nullopt});
      info.num_samples = entry.shape[0];
    }
    info.target = options_.target;
    return info;
  }

  void open() override {
    for (const Found& field : find_fields()) {
      at::Tensor tensor = field.file->read(field.index);
      if (field.is_image) {
        set_field(field.name, tensor, std::numeric_limits<uint8_t>::max());
      } else {
        const bool is_wide = tensor.scalar_type() == at::kDouble && !fits_float32(tensor);
        if (!is_wide) tensor = tensor.to(given_as(field));
        if (field.entry().dtype == at::kUInt64) require_signed(field.name, tensor);
        if (field.lengths) {
          sequences_.emplace_back(field.name, RaggedRows{tensor, begins_of(field), options_.padding});
          continue;
        }
        set_field(field.name, tensor);
        if (field.name == options_.target) check_classes(tensor);
      }
    }
  }

  Batch get(const at::Tensor& indices) const override {
    Batch batch = TensorDataset::get(indices);
    set_sequences(batch, sequences_, indices);
    return batch;
  }

  DatasetFacts facts() const override {
    DatasetFacts facts = TensorDataset::facts();
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      if (options_.is_sequence(name)) field.padding = static_cast<int64_t>(options_.padding);
      for (const auto& [sequence, unused] : sequences_) {
        if (name == mask_name(sequence)) field.padding = 0;
      }
      return field;
    };
    facts.held = [this, of_rows = facts.held](const std::string& name) {
      const bool has_rows = std::none_of(sequences_.begin(), sequences_.end(), [&](const auto& one) {
        return name == one.first || name == mask_name(one.first);
      });
      return has_rows ? of_rows(name) : at::Tensor();
    };
    facts.lengths = [this] { return sequences_.empty() ? at::Tensor() : lengths_between(sequences_[0].second.begins); };
    facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
    return facts;
  }

 private:
  /// "train.npz:17:label": the row's number is its index, as NumPy counts.
  std::string place(int64_t index, const std::string& field) const {
    const std::string* own = options_.fields ? options_.fields->find(field) : nullptr;
    return options_.path.value_or(own ? *own : "") + ":" + std::to_string(index) + ":" + field;
  }
  struct Found {
    std::string name;
    std::shared_ptr<TensorFile> file;
    size_t index;
    bool is_image = false;
    std::shared_ptr<const at::Tensor> lengths = nullptr;  // of a sequence, or where each begins
    int64_t num_samples = 0;                              // likewise

    const TensorFile::Entry& entry() const { return file->entries()[index]; }
  };

  at::ScalarType given_as(const Found& field) const {
    const at::ScalarType dtype = field.entry().dtype;
    if (field.is_image || at::isFloatingType(dtype)) return at::kFloat;
    if (dtype == at::kBool && field.name != options_.target) return at::kBool;
    return at::isComplexType(dtype) ? dtype : at::kLong;
  }

  /// Marks the fields whose bytes are pixels.
  void find_images(std::vector<Found>& fields) const {
    if (options_.images) {
      for (const std::string& image : *options_.images) mark_image(image, fields);
      return;
    }
    const Found* input = nullptr;  // what is an image most likely
    for (const Found& field : fields) {
      constexpr size_t kDimsOfImages = 4;  // [N, C, H, W]
      const size_t dims = field.entry().shape.size();
      if (!has_bytes(field) || (&field != &fields[0] && dims < kDimsOfImages)) continue;
      if (!input || dims > input->entry().shape.size()) input = &field;
    }
    if (!input) return;
    const std::vector<int64_t> shape = input->entry().shape;
    for (Found& field : fields) field.is_image = has_bytes(field) && field.entry().shape == shape;
  }

  bool has_bytes(const Found& field) const { return field.entry().dtype == at::kByte && field.name != options_.target; }

  void mark_image(const std::string& name, std::vector<Found>& fields) const {
    const auto it = std::find_if(fields.begin(), fields.end(), [&](const Found& field) { return field.name == name; });
    const std::string path = options_.path ? *options_.path + ": " : "";
    if (it == fields.end()) {
      std::vector<std::string> names;
      for (const Found& field : fields) names.push_back(field.name);
      throw DataError(path + "images: there is no field '" + name + "'" + suggestion(name, names));
    }
    if (it->entry().dtype != at::kByte) {
      throw DataError(path + "images: field '" + name + "' holds " + at::toString(it->entry().dtype) +
                      ", not bytes (uint8)");
    }
    it->is_image = true;
  }

  /// Of integers that were unsigned.
  void require_signed(const std::string& field, const at::Tensor& integers) const {
    const at::Tensor wrong = integers.flatten().lt(0).nonzero();
    if (wrong.size(0) == 0) return;
    const int64_t row = wrong[0][0].item<int64_t>() / (integers.numel() / integers.size(0));
    throw DataError(place(row, field) + ": holds integers above 2^63 - 1, which are not read");
  }

  void check_classes(const at::Tensor& target) const {
    if (!options_.num_classes || target.scalar_type() != at::kLong || target.numel() == 0) return;
    const at::Tensor wrong = target.lt(0).logical_or(target.ge(*options_.num_classes)).nonzero();
    if (wrong.size(0) == 0) return;
    const auto row = wrong[0][0].item<int64_t>();
    const at::Tensor values = target[row].flatten();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const auto value = values[i].item<int64_t>();
      if (value >= 0 && value < *options_.num_classes) continue;
      throw DataError(place(row, options_.target) + ": class " + std::to_string(value) + " is not from 0 to " +
                      std::to_string(*options_.num_classes - 1));
    }
  }

  std::vector<Found> find_fields() const {
    const std::shared_ptr<TensorFile> file = options_.path ? open_tensor_file(*options_.path) : nullptr;
    std::vector<Found> found;
    if (options_.fields) {
      for (const auto& [name, tensor] : options_.fields->entries) found.push_back(find(name, tensor, file));
    } else {
      for (size_t i = 0; i < file->entries().size(); ++i) found.push_back({file->entries()[i].name, file, i, false});
      std::stable_sort(found.begin(), found.end(), [&](const Found& a, const Found& b) {  // the target last
        return (a.name == options_.target) < (b.name == options_.target);
      });
      if (found.empty()) throw DataError(*options_.path + ": holds no tensor");
      if (found.back().name != options_.target) {
        const std::string near = nearest(options_.target, names_of(*file));
        throw DataError(*options_.path + ": there is no tensor '" + options_.target + "'" +
                        suggestion(options_.target, names_of(*file)) +
                        (near.empty() ? "; target: says which is to be predicted, as in target: " + found.back().name
                                      : " Then write target: " + near));
      }
    }
    find_sequences(found, file);
    check_sizes(found);
    find_images(found);
    return found;
  }

  /// Leaves out the tensors that only say how long others' samples are.
  void find_sequences(std::vector<Found>& found, const std::shared_ptr<TensorFile>& file) const {
    if (!options_.sequences) return;
    const auto field_of = [&](const std::string& name) {
      return std::find_if(found.begin(), found.end(), [&](const Found& field) { return field.name == name; });
    };
    for (const auto& [name, lengths] : options_.sequences->entries) {
      const Found own = find(lengths, lengths, file);
      if (own.entry().shape.size() != 1 || !at::isIntegralType(own.entry().dtype, false)) {
        throw DataError(place_of_file(lengths) + ": the lengths of '" + name +
                        "' must be integers, one for each sample");
      }
      if (!options_.fields && field_of(lengths) != found.end()) found.erase(field_of(lengths));
      if (field_of(name) == found.end()) {
        throw DataError(place_of_file(name) + ": sequences: there is no tensor '" + name + "'");
      }
      field_of(name)->lengths = std::make_shared<const at::Tensor>(own.file->read(own.index).to(at::kLong));
    }
    const int64_t num_samples = field_of(options_.target)->entry().shape.at(0);
    for (Found& field : found) field.num_samples = num_samples;
  }
  std::string place_of_file(const std::string& tensor) const { return options_.path.value_or(tensor); }

  /// Where each sample of a sequence begins, and the end.
  std::vector<int64_t> begins_of(const Found& field) const {
    const at::Tensor& given = *field.lengths;
    const int64_t* numbers = given.const_data_ptr<int64_t>();
    const std::string where =
        place_of_file(field.name) + ": sequences: what says how long the samples of '" + field.name + "' are ";
    if (given.numel() != field.num_samples && given.numel() != field.num_samples + 1) {
      throw DataError(where + "has " + std::to_string(given.numel()) + " numbers, expected the lengths of " +
                      std::to_string(field.num_samples) + " samples, or where each begins and the last ends");
    }
    std::vector<int64_t> begins = {0};
    const bool are_lengths = given.numel() == field.num_samples;
    for (int64_t i = are_lengths ? 0 : 1; i < given.numel(); ++i) {
      begins.push_back(are_lengths ? begins.back() + numbers[i] : numbers[i]);
      if (begins.back() >= begins[begins.size() - 2]) continue;
      throw DataError(where + (are_lengths ? "is below 0" : "goes back") + " at number " + std::to_string(i));
    }
    const int64_t num_items = field.entry().shape.at(0);
    if ((!are_lengths && numbers[0] != 0) || begins.back() != num_items) {
      throw DataError(where + "goes from " + std::to_string(are_lengths ? 0 : numbers[0]) + " to " +
                      std::to_string(begins.back()) + ", but there are " + std::to_string(num_items) + " items");
    }
    return begins;
  }

  Found find(const std::string& name, const std::string& tensor, const std::shared_ptr<TensorFile>& file) const {
    if (file) {
      const std::vector<std::string> names = names_of(*file);
      const auto it = std::find(names.begin(), names.end(), tensor);
      if (it == names.end()) {
        throw DataError(*options_.path + ": there is no tensor '" + tensor + "'" + suggestion(tensor, names));
      }
      return {name, file, static_cast<size_t>(it - names.begin()), false};
    }
    std::shared_ptr<TensorFile> own = open_tensor_file(tensor);
    if (own->entries().size() != 1) {
      throw DataError(tensor + ": holds " + std::to_string(own->entries().size()) +
                      " tensors; say the file in path and the tensor's name in fields");
    }
    return {name, own, 0, false};
  }

  static std::vector<std::string> names_of(const TensorFile& file) {
    std::vector<std::string> names;
    for (const TensorFile::Entry& entry : file.entries()) names.push_back(entry.name);
    return names;
  }

  void check_sizes(const std::vector<Found>& found) const {
    const auto shape_of = [](const Found& field) { return field.entry().shape; };
    const Found* first = nullptr;  // with a row for each sample
    for (const Found& field : found) {
      if (shape_of(field).empty())
        throw DataError("field '" + field.name + "' is a single number, expected one row for each sample");
      if (field.lengths) continue;
      if (!first) first = &field;
      if (shape_of(field)[0] != shape_of(*first)[0]) {
        throw DataError("field '" + field.name + "' has " + std::to_string(shape_of(field)[0]) + " samples, but '" +
                        first->name + "' has " + std::to_string(shape_of(*first)[0]) +
                        (options_.sequences ? ""
                                            : "; where samples have different lengths and lie one after another, name "
                                              "the tensor of their lengths in sequences"));
      }
    }
  }

  TensorFileOptions options_;
  std::vector<std::pair<std::string, RaggedRows>> sequences_;
};

std::unique_ptr<Dataset> TensorFileOptions::build(const DatasetInputs&) const {
  auto dataset = std::make_unique<TensorFileDataset>(*this);
  if (!split) return dataset;
  return split->part_of(std::move(dataset));
}

}  // namespace

void add_tensor_file(DatasetRegistry& datasets) {
  datasets.add<TensorFileOptions>("TensorFile",
                                  "tensors of a .safetensors, .npz or .npy file, one row for each sample");
}

}  // namespace trainrun
