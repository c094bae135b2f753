#include "registry/text_data/encoded_texts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEncodedAtOnce = 4096;

/// Of the whole text, but for space around it.
std::optional<double> finite_number(std::string_view text) {
  const auto number = data_number_of(without_space(text));
  return number && std::isfinite(*number) ? number : std::nullopt;
}

/// Whether it is digits alone, of which each spelling is a name of its own: 007, or integers too large for a double.
bool is_plain(const std::string& number) { return number.find_first_not_of("-0123456789") == std::string::npos; }

bool lacks_label(const std::string& label) { return label.find_first_not_of(" \t") == std::string::npos; }

/// Sorted, by value where all are numbers.
std::vector<std::string> sorted_classes(const std::set<std::string>& names) {
  std::vector<std::string> classes(names.begin(), names.end());
  const auto is_number = [](const std::string& name) { return finite_number(name).has_value(); };
  if (std::all_of(classes.begin(), classes.end(), is_number)) {
    std::stable_sort(classes.begin(), classes.end(),
                     [](const std::string& a, const std::string& b) { return *finite_number(a) < *finite_number(b); });
  }
  return classes;
}

}  // namespace

EncodedTexts::EncodedTexts(TextTableOptions source, EncodingOptions encoding,
                           std::optional<std::vector<std::string>> classes, std::optional<int64_t> num_samples,
                           Target target)
    : source_(std::move(source)),
      encoding_(std::move(encoding)),
      classes_(std::move(classes)),
      num_samples_(num_samples),
      target_(target) {}

DatasetInfo EncodedTexts::info() const {
  if (source_.label && lines_.empty()) look_at_text_table(source_);
  DatasetInfo info;
  add_text_fields(info, encoding_.max_length);
  const auto num_classes = classes_ ? std::optional(static_cast<int64_t>(classes_->size())) : std::nullopt;
  if (has_numbers()) {
    info.fields.push_back({"labels", {1}, at::kFloat, std::nullopt});
  } else {
    info.fields.push_back({"labels", {}, at::kLong, num_classes});
  }
  info.target = "labels";
  info.num_samples = num_samples_;
  return info;
}

void EncodedTexts::open() { open_rows(read_text_table(source_)); }

void EncodedTexts::open_rows(TextRows table, std::vector<std::string> places) {
  places_ = std::move(places);
  if (num_samples_ && static_cast<int64_t>(table.lines.size()) != *num_samples_) {
    throw DataError(source_.path + ": has " + std::to_string(table.lines.size()) + " rows, the published file " +
                    std::to_string(*num_samples_));
  }
  if (leaves_out_unlabelled()) leave_out_unlabelled(table);
  const bool is_kept = encoding_.cache == TokenCaching::kDisk;
  use(is_kept ? arrays_on_disk(cache_key(), kTextArrays, [&] { return encoded(table); }) : encoded(table),
      table.lines.size());
  names_ = std::move(table.labels);
  lines_ = std::move(table.lines);
  if (table.left_out > 0) {
    notes_.push_back(
        source_.path + ": " + std::to_string(table.left_out) +
        (table.left_out == 1 ? " row is left out, because it lacks" : " rows are left out, because they lack") +
        " the column of a text or of the label");
  }
  require_labels();
  if (has_numbers()) {
    read_numbers();
  } else {
    if (!source_.label) labels_.assign(lines_.size(), 0);
    if (classes_) number_labels(*classes_);
  }
}

/// An empty cell is not a class, unless the recipe lists it as one.
bool EncodedTexts::needs_labels() const {
  return !classes_ || std::find(classes_->begin(), classes_->end(), "") == classes_->end();
}

void EncodedTexts::require_labels() const {
  if (!needs_labels()) return;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!lacks_label(names_[i])) continue;
    throw DataError(place(static_cast<int64_t>(i), *source_.label) + ": the label is missing; " +
                    (source_.can_leave_out_unlabelled ? "write broken: skip to leave such rows out"
                                                      : "leave such rows out of the file"));
  }
}

void EncodedTexts::leave_out_unlabelled(TextRows& table) {
  const std::vector<std::string> labels = table.labels;
  const auto keep = [&](auto& of_rows) {
    if (of_rows.empty()) return;
    size_t kept = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (!lacks_label(labels[i])) std::swap(of_rows[kept++], of_rows[i]);
    }
    of_rows.resize(kept);
  };
  keep(table.first);
  keep(table.second);
  keep(table.lines);
  keep(table.labels);
  keep(places_);
  const auto count = static_cast<int64_t>(labels.size() - table.labels.size());
  if (count == 0) return;
  if (table.labels.empty()) throw DataError(source_.path + ": no row has a label in '" + *source_.label + "'");
  notes_.push_back(source_.path + ": " + counted(count, "row without a label is", "rows without a label are") +
                   " left out");
}

void EncodedTexts::read_numbers() {
  const char* advice = target_ == Target::kNumber ? "; for labels that are classes write task: classification" : "";
  numbers_.assign(lines_.size(), 0);
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto number = finite_number(names_[i]);
    numbers_[i] = static_cast<float>(number.value_or(0));
    if (number && std::isfinite(numbers_[i])) continue;
    const std::string fault = number ? "is too large for float32" : std::string("is not a number") + advice;
    throw DataError(place(static_cast<int64_t>(i), *source_.label) + ": '" + names_[i] + "' " + fault);
  }
}

/// Throws DataError where all labels of the samples are numbers, but two are the same one; or one is a fraction, which
/// can hardly be a class, and the recipe does not say that it is.
void EncodedTexts::check_classes(const at::Tensor& indices) const {
  std::map<double, size_t> numbers;  // of the labels, each with the first sample that has it
  std::optional<size_t> fraction;
  std::optional<std::pair<size_t, size_t>> twice;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto sample = static_cast<size_t>(indices.const_data_ptr<int64_t>()[i]);
    const auto number = finite_number(names_[sample]);
    if (!number) return;  // there are names among them
    if (!fraction && *number != std::floor(*number)) fraction = sample;
    const size_t first = numbers.emplace(*number, sample).first->second;
    const bool differ = names_[first] != names_[sample] && !(is_plain(names_[first]) && is_plain(names_[sample]));
    if (!twice && differ) twice = {first, sample};
  }
  const auto at = [&](size_t sample) {
    return place(static_cast<int64_t>(sample), *source_.label) + ": '" + names_[sample] + "' ";
  };
  if (fraction && target_ == Target::kLikelyClass) {
    throw DataError(at(*fraction) +
                    "is a fraction, as no class is where all labels are numbers; write task: regression to learn "
                    "numbers, or task: classification to have them as classes all the same");
  }
  if (twice) {
    throw DataError(at(twice->second) + "is the same number as '" + names_[twice->first] + "' in line " +
                    std::to_string(lines_[twice->first]) +
                    ", but would be another class; list the classes in `classes`, or write the numbers one way");
  }
}

std::unique_ptr<EncodedTexts> EncodedTexts::without_labels() const {
  TextTableOptions source;
  source.text_columns = source_.text_columns;
  source.encoding = source_.encoding;
  EncodingOptions encoding = encoding_;
  encoding.cache = TokenCaching::kNone;  // they are read once
  return std::make_unique<EncodedTexts>(std::move(source), std::move(encoding), classes_, std::nullopt, target_);
}

ByteArrays EncodedTexts::encoded(const TextRows& table) const {
  const auto tokenizer = open_tokenizer(encoding_.in(encoding_.tokenizer));
  Truncation truncation;
  truncation.max_length = encoding_.max_length;
  truncation.side = tokenizer->truncation_side();
  const auto made = std::make_shared<TextArrays>(*tokenizer);
  const size_t count = table.first.size();
  for (size_t begin = 0; begin < count; begin += kEncodedAtOnce) {
    std::vector<TextPair> texts;
    for (size_t i = begin; i < std::min(begin + kEncodedAtOnce, count); ++i) {
      texts.push_back(
          {table.first[i], table.second.empty() ? std::nullopt : std::optional<std::string_view>(table.second[i])});
    }
    for (const Encoding& text : encode_batch(*tokenizer, texts, truncation)) made->add(text);
  }
  return {made, made->bytes()};
}

std::string EncodedTexts::cache_key() const {
  TokenCacheKey key("texts with their padding");
  key.add_tokenizer(encoding_.in(encoding_.tokenizer)).add_file(source_.path).add(encoding_.max_length);
  key.add(fs::path(source_.path).extension().string()).add(source_.leaves_out_short_rows ? 1 : 0);
  for (const auto* names : {&source_.text_columns, &source_.names}) {
    key.add(static_cast<int64_t>(names->size()));
    for (const std::string& name : *names) key.add(name);
  }
  if (source_.label) key.add(*source_.label);  // a row without it may be left out
  if (leaves_out_unlabelled()) key.add("labelled");
  if (source_.encoding.value_or(TextEncoding::kUtf8) != TextEncoding::kUtf8) key.add(word_of(*source_.encoding));
  return key.finish();
}

void EncodedTexts::use(ByteArrays arrays, size_t num_texts) {
  if (!tokens_.read(std::move(arrays), num_texts)) throw DataError(source_.path + ": was changed while it was read");
  if (tokens_.longest() <= encoding_.max_length) return;
  throw DataError(source_.path + ": its tokens in the cache folder are more than max_length; remove them there");
}

void EncodedTexts::number_labels(const std::vector<std::string>& classes) {
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : classes) numbers.emplace(name, static_cast<int64_t>(numbers.size()));
  labels_.clear();
  if (!source_.label) labels_.resize(lines_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto found = numbers.find(names_[i]);
    if (found == numbers.end()) {
      throw DataError(place(static_cast<int64_t>(i), *source_.label) + ": '" + names_[i] + "' is not a class" +
                      suggestion(names_[i], classes));
    }
    labels_.push_back(found->second);
  }
}

void EncodedTexts::learn(const at::Tensor& indices) {
  if (classes_ || has_numbers()) return;  // the recipe lists them, or there are none
  check_classes(indices);
  std::set<std::string> names;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    names.insert(names_[static_cast<size_t>(indices.const_data_ptr<int64_t>()[i])]);
  }
  classes_ = sorted_classes(names);
  number_labels(*classes_);
}

nlohmann::json EncodedTexts::learnt() const {
  if (has_numbers()) return nullptr;
  return {{"classes", classes_.value_or(std::vector<std::string>())}};
}

void EncodedTexts::set_learnt(const nlohmann::json& state) {
  if (has_numbers()) return;
  try {
    classes_ = state.at("classes").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(source_.path + ": what was learnt belongs to other data: it holds no classes");
  }
  number_labels(*classes_);
}

Batch EncodedTexts::get(const at::Tensor& indices) const {
  const int64_t n = indices.numel();
  const std::vector<TextStretch> texts = tokens_.stretches(indices);
  const at::Tensor labels = has_numbers() ? at::empty({n, 1}, at::kFloat) : at::empty({n}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const auto sample = static_cast<size_t>(indices.const_data_ptr<int64_t>()[i]);
    if (has_numbers()) {
      labels.mutable_data_ptr<float>()[i] = numbers_[sample];
    } else {
      labels.mutable_data_ptr<int64_t>()[i] = labels_[sample];
    }
  }
  Batch batch = tokens_.batch(texts, padded_length(texts, encoding_));
  batch.set("labels", labels);
  return batch;
}

at::Tensor EncodedTexts::column(const std::string& field) const {
  if (field == "labels" && has_numbers()) return at::tensor(numbers_, at::kFloat).unsqueeze(1);
  if (field == "labels") return at::tensor(labels_, at::kLong);
  return Dataset::column(field);
}

DatasetFacts EncodedTexts::facts() const {
  DatasetFacts facts;
  facts.field = [this](const std::string& name) {
    FieldFacts field;
    if (name == "labels" && classes_) field.class_names = *classes_;
    if (name == "labels" && source_.is_chosen && source_.label) field.called = *source_.label;
    field.padding = name == "input_ids" ? tokens_.pad_id() : 0;
    return field;
  };
  facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
  facts.texts = [this](const std::string& column) { return texts(column); };
  facts.lengths = [this] { return tokens_.lengths(encoding_); };
  facts.notes = [this] { return notes_; };
  facts.unlabelled = [this](const UnlabelledSource& source) { return read_unlabelled_texts(source, *this); };
  return facts;
}

std::string EncodedTexts::place(int64_t index, const std::string& field) const {
  const auto sample = static_cast<size_t>(index);
  return (places_.empty() ? source_.path + ":" + std::to_string(lines_[sample]) : places_[sample]) + ":" + field;
}

std::vector<std::string> EncodedTexts::texts(const std::string& column) const {
  if (column == "labels") return names_;  // the field, whatever the file calls it
  TextTableOptions only = source_;
  only.text_columns = {column};
  only.label.reset();
  TextRows table = read_text_table(only);
  if (lines_.empty()) return table.first;
  std::vector<std::string> texts;  // of the rows that are not left out
  for (size_t i = 0; i < table.lines.size() && texts.size() < lines_.size(); ++i) {
    if (table.lines[i] == lines_[texts.size()]) texts.push_back(std::move(table.first[i]));
  }
  return texts;
}

}  // namespace trainrun
