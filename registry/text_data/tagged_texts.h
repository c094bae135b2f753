#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "registry/text_data/padded_texts.h"
#include "registry/text_data/word_table.h"

namespace trainrun {

class TaggedTexts;
class UnlabelledData;
struct UnlabelledSource;

constexpr const char* kWordIds = "word_ids";
constexpr const char* kNumWords = "num_words";

/// The sentences of `source`'s files, encoded as `like` encodes its own, which need not be open and is not needed any
/// more after this; beside each are its `line` and its `words`. Throws DataError. (unlabelled_tags.cpp)
std::unique_ptr<UnlabelledData> read_unlabelled_tags(const UnlabelledSource& source, const TaggedTexts& like);

/// Sentences whose words have a class each: `input_ids`, `attention_mask`, `token_type_ids` and `labels` [L], int64, with
/// L that of the batch. The first token of a word has its class, the others have none (-100) or, by `label_all_tokens`,
/// the same one, of B-X I-X if there is such a class: as transformers' run_ner aligns them.
/// Besides, though no data set declares them, `word_ids` [L], the number of each token's word in its text (-1: it is of
/// none), and `num_words`.
class TaggedTexts : public Dataset {
 public:
  /// `classes`: the labels as the file writes them, in their order, to which integers in a file are places; null: those of
  /// the training samples, sorted.
  TaggedTexts(WordTableOptions source, EncodingOptions encoding, std::optional<std::vector<std::string>> classes,
              bool label_all_tokens);

  /// The same for the sentences of another file, whose labels are not read: all are -100.
  std::unique_ptr<TaggedTexts> unlabelled(const std::string& path) const;
  /// The words of a sentence.
  std::span<const std::string> words(int64_t index) const;
  /// Of each token of a sentence, as `get` gives them without padding, the number of its word; -1: a special token.
  std::span<const int32_t> word_numbers(int64_t index) const;
  /// Where the first word is, from 1: its line, or the row.
  int64_t line(int64_t index) const { return table_.lines.at(static_cast<size_t>(index)); }

  DatasetInfo info() const override;
  void open() override;
  int64_t size() const override { return table_.size(); }
  Batch get(const at::Tensor& indices) const override;
  void learn(const at::Tensor& indices) override;
  nlohmann::json learnt() const override;
  void set_learnt(const nlohmann::json& state) override;
  DatasetFacts facts() const override;

 private:
  std::string place(int64_t sentence, int64_t word) const;
  std::string place_of_field(int64_t index, const std::string& field) const;
  std::vector<std::string> texts(const std::string& column) const;
  ByteArrays encoded() const;
  std::string cache_key() const;
  void use(ByteArrays arrays);
  void count_lost_words();
  void number_labels();
  int64_t label_of(int64_t sentence, int64_t token) const;

  WordTableOptions source_;
  EncodingOptions encoding_;
  std::optional<std::vector<std::string>> classes_;
  bool label_all_tokens_;
  WordTable table_;
  PaddedTexts tokens_;
  std::span<const int32_t> of_word_;  // of each token, the word's number in its sentence, or -1
  std::vector<int64_t> labels_;       // of each word, its class; empty: not known
  std::vector<int64_t> following_;    // of each class, that of a word's further tokens
  std::vector<std::string> notes_;
};

}  // namespace trainrun
