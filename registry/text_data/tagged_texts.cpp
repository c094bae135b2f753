#include "registry/text_data/tagged_texts.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/unlabelled_data.h"
#include "registry/language/error.h"
#include "registry/language/text_number.h"
#include "registry/text_data/first_rows.h"

namespace trainrun {
namespace {

constexpr int64_t kNoClass = -100;
constexpr size_t kNumTagArrays = kTextArrays + 1;

/// What `encoded` gives.
struct TaggedArrays : TextArrays {
  using TextArrays::TextArrays;
  std::vector<int32_t> words;  // of each token
};

/// Sorted; integers by their value.
std::vector<std::string> sorted_names(const std::set<std::string>& names, bool are_numbers) {
  std::vector<std::string> sorted(names.begin(), names.end());
  if (are_numbers) std::ranges::sort(sorted, {}, [](const std::string& name) { return *number_of<int64_t>(name); });
  return sorted;
}

}  // namespace

TaggedTexts::TaggedTexts(WordTableOptions source, EncodingOptions encoding,
                         std::optional<std::vector<std::string>> classes, bool label_all_tokens)
    : source_(std::move(source)),
      encoding_(std::move(encoding)),
      classes_(std::move(classes)),
      label_all_tokens_(label_all_tokens) {}

std::unique_ptr<TaggedTexts> TaggedTexts::unlabelled(const std::string& path) const {
  WordTableOptions source = source_;
  source.path = path;
  source.has_labels = false;
  EncodingOptions encoding = encoding_;
  encoding.cache = TokenCaching::kNone;  // they are read once
  return std::make_unique<TaggedTexts>(std::move(source), std::move(encoding), classes_, label_all_tokens_);
}

std::span<const std::string> TaggedTexts::words(int64_t index) const {
  const auto begin = static_cast<size_t>(table_.begins.at(static_cast<size_t>(index)));
  const auto end = static_cast<size_t>(table_.begins.at(static_cast<size_t>(index) + 1));
  return std::span(table_.words).subspan(begin, end - begin);
}

std::span<const int32_t> TaggedTexts::word_numbers(int64_t index) const {
  const auto [begin, count] = tokens_.stretch(index);
  return of_word_.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

DatasetInfo TaggedTexts::info() const {
  if (source_.has_labels && table_.lines.empty()) {
    look_at_first_rows(source_.path, [&](const std::function<void()>& count) {
      WordTableOptions first = source_;
      first.count = count;
      read_word_table(first);
    });
  }
  DatasetInfo info;
  add_text_fields(info, encoding_.max_length);
  const auto num_classes = classes_ ? std::optional(static_cast<int64_t>(classes_->size())) : std::nullopt;
  info.fields.push_back({"labels", {encoding_.max_length}, at::kLong, num_classes});
  info.target = "labels";
  return info;
}

void TaggedTexts::open() {
  table_ = read_word_table(source_);
  for (const std::string& note : table_.notes) notes_.push_back(source_.path + ": " + note);
  const bool is_kept = encoding_.cache == TokenCaching::kDisk;
  use(is_kept ? arrays_on_disk(cache_key(), kNumTagArrays, [&] { return encoded(); }) : encoded());
  count_lost_words();
  if (classes_) number_labels();
}

ByteArrays TaggedTexts::encoded() const {
  const auto tokenizer = open_tokenizer(encoding_.in(encoding_.tokenizer));
  Truncation truncation;
  truncation.max_length = encoding_.max_length;
  truncation.side = tokenizer->truncation_side();
  constexpr int64_t kSentencesAtOnce = 64;
  std::vector<WordEncoding> encodings(static_cast<size_t>(table_.size()));
  at::parallel_for(0, table_.size(), kSentencesAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      encodings[static_cast<size_t>(i)] = tokenizer->encode_words(words(i), truncation);
    }
  });
  const auto made = std::make_shared<TaggedArrays>(*tokenizer);
  for (const WordEncoding& sentence : encodings) {
    made->add(sentence);
    made->words.insert(made->words.end(), sentence.words.begin(), sentence.words.end());
  }
  ByteArrays arrays{made, made->bytes()};
  arrays.arrays.push_back(bytes_of(made->words));
  return arrays;
}

std::string TaggedTexts::cache_key() const {
  TokenCacheKey key("texts, then their words");
  key.add_tokenizer(encoding_.in(encoding_.tokenizer)).add_file(source_.path).add(encoding_.max_length);
  key.add(std::filesystem::path(source_.path).extension().string()).add(word_of(source_.encoding));
  const auto add_column = [&](const std::optional<WordColumn>& column) {
    key.add(!column ? "" : column->index() == 0 ? std::to_string(std::get<0>(*column)) : "=" + std::get<1>(*column));
  };
  add_column(source_.words);
  return key.finish();
}

void TaggedTexts::use(ByteArrays arrays) {
  of_word_ = numbers_in<int32_t>(arrays.arrays.at(kTextArrays));
  bool fits = tokens_.read(std::move(arrays), static_cast<size_t>(size()));
  fits = fits && static_cast<int64_t>(of_word_.size()) == tokens_.num_tokens() &&
         tokens_.longest() <= encoding_.max_length;
  for (int64_t i = 0; fits && i < size(); ++i) {
    const auto count = static_cast<int32_t>(words(i).size());
    const auto numbers = word_numbers(i);
    fits = std::all_of(numbers.begin(), numbers.end(), [&](int32_t word) { return word >= -1 && word < count; });
  }
  if (!fits) throw DataError(source_.path + ": was changed while it was read");
}

/// Says which words the model never sees.
void TaggedTexts::count_lost_words() {
  int64_t num_cut = 0;
  int64_t num_cut_words = 0;
  int64_t num_empty = 0;
  for (int64_t i = 0; i < size(); ++i) {
    const std::span<const std::string> all = words(i);
    std::vector<bool> seen(all.size());
    for (const int32_t word : word_numbers(i)) {
      if (word >= 0) seen[static_cast<size_t>(word)] = true;
    }
    const auto is_full = static_cast<int64_t>(word_numbers(i).size()) >= encoding_.max_length;
    const auto lost = std::count(seen.begin(), seen.end(), false);
    const auto before = std::find(seen.begin(), seen.end(), true) - seen.begin();
    const auto behind = std::find(seen.rbegin(), seen.rend(), true) - seen.rbegin();
    const auto cut = is_full ? std::min<int64_t>(before + behind, lost) : 0;
    num_cut += cut > 0 ? 1 : 0;
    num_cut_words += cut;
    num_empty += lost - cut;
  }
  if (num_cut > 0) {
    notes_.push_back(source_.path + ": " + std::to_string(num_cut) + " of " + std::to_string(size()) +
                     (num_cut == 1 ? " sentences is" : " sentences are") + " longer than max_length (" +
                     std::to_string(encoding_.max_length) + " tokens); " + std::to_string(num_cut_words) +
                     (num_cut_words == 1 ? " word with its label is" : " words with their labels are") + " cut off");
  }
  if (num_empty > 0) {
    notes_.push_back(source_.path + ": the tokenizer makes no token of " + std::to_string(num_empty) +
                     (num_empty == 1 ? " word, whose label is not learnt" : " words, whose labels are not learnt"));
  }
}

/// From the names in the file to classes, and from a class to that of a word's further tokens.
void TaggedTexts::number_labels() {
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : *classes_) numbers.emplace(name, static_cast<int64_t>(numbers.size()));
  following_.clear();
  for (size_t i = 0; i < classes_->size(); ++i) {
    const std::string& name = (*classes_)[i];
    const auto inside = name.starts_with("B-") ? numbers.find("I" + name.substr(1)) : numbers.end();
    following_.push_back(inside == numbers.end() ? static_cast<int64_t>(i) : inside->second);
  }
  std::vector<int64_t> of_names;
  for (const std::string& name : table_.label_names) {
    const auto found = numbers.find(name);
    const auto place = table_.has_numbers ? number_of<int64_t>(name) : std::nullopt;
    const bool is_place = place && *place >= 0 && *place < static_cast<int64_t>(classes_->size());
    of_names.push_back(found != numbers.end() ? found->second : is_place ? *place : -1);
  }
  labels_.clear();
  for (int64_t sentence = 0; sentence < size() && !table_.labels.empty(); ++sentence) {
    const int64_t begin = table_.begins[static_cast<size_t>(sentence)];
    for (int64_t word = begin; word < table_.begins[static_cast<size_t>(sentence) + 1]; ++word) {
      const auto name = static_cast<size_t>(table_.labels[static_cast<size_t>(word)]);
      labels_.push_back(of_names[name]);
      if (labels_.back() >= 0) continue;
      throw DataError(place(sentence, word - begin) + ": '" + table_.label_names[name] + "' is not a class" +
                      suggestion(table_.label_names[name], *classes_));
    }
  }
}

void TaggedTexts::learn(const at::Tensor& indices) {
  if (classes_) return;  // the recipe lists them
  std::set<std::string> names;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto sentence = static_cast<size_t>(indices.const_data_ptr<int64_t>()[i]);
    for (int64_t word = table_.begins[sentence]; word < table_.begins[sentence + 1]; ++word) {
      names.insert(table_.label_names[static_cast<size_t>(table_.labels.at(static_cast<size_t>(word)))]);
    }
  }
  classes_ = sorted_names(names, table_.has_numbers);
  number_labels();
}

nlohmann::json TaggedTexts::learnt() const { return {{"classes", classes_.value_or(std::vector<std::string>())}}; }

void TaggedTexts::set_learnt(const nlohmann::json& state) {
  try {
    classes_ = state.at("classes").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(source_.path + ": what was learnt belongs to other data: it holds no classes");
  }
  number_labels();
}

int64_t TaggedTexts::label_of(int64_t sentence, int64_t token) const {
  const std::span<const int32_t> words = word_numbers(sentence);
  const auto at = static_cast<size_t>(token);
  if (words[at] < 0 || labels_.empty()) return kNoClass;
  const int64_t label = labels_[static_cast<size_t>(table_.begins[static_cast<size_t>(sentence)] + words[at])];
  if (token == 0 || words[at - 1] != words[at]) return label;
  return label_all_tokens_ ? following_[static_cast<size_t>(label)] : kNoClass;
}

Batch TaggedTexts::get(const at::Tensor& indices) const {
  const std::vector<TextStretch> texts = tokens_.stretches(indices);
  const int64_t length = padded_length(texts, encoding_);
  const at::Tensor labels = at::full({indices.numel(), length}, kNoClass, at::kLong);
  const at::Tensor of_words = at::full({indices.numel(), length}, -1, at::kLong);
  const at::Tensor counts = at::empty({indices.numel()}, at::kLong);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int64_t sample = indices.const_data_ptr<int64_t>()[i];
    const TextStretch& text = texts[static_cast<size_t>(i)];
    const int64_t first = i * length + tokens_.first_of(text, length);
    int64_t* row = labels.mutable_data_ptr<int64_t>() + first;
    for (int64_t token = 0; token < text.count; ++token) row[token] = label_of(sample, token);
    std::ranges::copy(word_numbers(sample), of_words.mutable_data_ptr<int64_t>() + first);
    counts.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(words(sample).size());
  }
  Batch batch = tokens_.batch(texts, length);
  batch.set("labels", labels);
  batch.set(kWordIds, of_words);
  batch.set(kNumWords, counts);
  return batch;
}

DatasetFacts TaggedTexts::facts() const {
  DatasetFacts facts;
  facts.field = [this](const std::string& name) {
    FieldFacts field;
    if (name == "labels" && classes_) field.class_names = *classes_;
    field.padding = name == "input_ids" ? tokens_.pad_id() : name == "labels" ? kNoClass : 0;
    return field;
  };
  facts.place = [this](int64_t index, const std::string& field) { return place_of_field(index, field); };
  facts.texts = [this](const std::string& column) { return texts(column); };
  facts.lengths = [this] { return tokens_.lengths(encoding_); };
  facts.notes = [this] { return notes_; };
  facts.unlabelled = [this](const UnlabelledSource& source) { return read_unlabelled_tags(source, *this); };
  return facts;
}

std::string TaggedTexts::place(int64_t sentence, int64_t word) const {
  if (!table_.word_lines.empty()) {
    const int64_t at = table_.begins[static_cast<size_t>(sentence)] + word;
    return source_.path + ":" + std::to_string(table_.word_lines[static_cast<size_t>(at)]);
  }
  const auto* name = source_.labels ? std::get_if<std::string>(&*source_.labels) : nullptr;
  return source_.path + ":" + std::to_string(line(sentence)) + ":" + (name ? *name : "ner_tags") + "[" +
         std::to_string(word) + "]";
}

std::string TaggedTexts::place_of_field(int64_t index, const std::string& field) const {
  return source_.path + ":" + std::to_string(line(index)) + ":" + field;
}

/// Of each sentence its words, or their labels, with blanks between them.
std::vector<std::string> TaggedTexts::texts(const std::string& column) const {
  const bool are_labels = column == "labels";
  if (!are_labels && column != "words") {
    throw DataError(source_.path + ": sentences of words have the columns words and labels, not '" + column + "'");
  }
  std::vector<std::string> texts;
  for (int64_t i = 0; i < size(); ++i) {
    std::string text;
    for (int64_t word = table_.begins[static_cast<size_t>(i)]; word < table_.begins[static_cast<size_t>(i) + 1];
         ++word) {
      const auto at = static_cast<size_t>(word);
      if (!text.empty()) text += ' ';
      text += are_labels ? table_.label_names[static_cast<size_t>(table_.labels.at(at))] : table_.words[at];
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace trainrun
