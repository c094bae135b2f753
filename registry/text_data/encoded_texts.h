#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/dataset.h"
#include "registry/kinds/unlabelled_data.h"
#include "registry/text_data/padded_texts.h"
#include "registry/text_data/text_table.h"

namespace trainrun {

class EncodedTexts;
/// The texts of `source`'s files, encoded as `like` encodes its own, which need not be open: tables of any kind that have
/// its text columns; and, where it has one text column, files whose first line does not name it, in which every line is a
/// text. `like` is not needed any more after this. Throws DataError. (unlabelled_texts.cpp)
std::unique_ptr<UnlabelledData> read_unlabelled_texts(const UnlabelledSource& source, const EncodedTexts& like);

/// One or two texts and a class, or a number: `input_ids`, `attention_mask` and
/// `token_type_ids` [L], int64, with L that of the batch, and `labels`. All
/// texts are encoded when the data are opened, on all threads.
class EncodedTexts : public Dataset {
 public:
  /// What is to be predicted of a text. kScore: a number, which no recipe can make a class; kLikelyClass: a class,
  /// since the recipe does not say, so that labels which can hardly be classes are refused.
  enum class Target { kClass, kNumber, kScore, kLikelyClass };

  /// `classes`: the labels as the file writes them, in their order; null: those
  /// of the training samples, sorted. `num_samples`: what the file must have;
  /// null: any number.
  EncodedTexts(TextTableOptions source, EncodingOptions encoding, std::optional<std::vector<std::string>> classes,
               std::optional<int64_t> num_samples = std::nullopt, Target target = Target::kClass);

  /// The same, closed, for texts of other files; labels are 0.
  std::unique_ptr<EncodedTexts> without_labels() const;

  DatasetInfo info() const override;
  void open() override;
  /// Instead of `open`: of rows that were read already. `places`: where each was, for messages; empty: its line.
  void open_rows(TextRows table, std::vector<std::string> places = {});
  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }
  Batch get(const at::Tensor& indices) const override;
  at::Tensor column(const std::string& field) const override;
  void learn(const at::Tensor& indices) override;
  nlohmann::json learnt() const override;
  void set_learnt(const nlohmann::json& state) override;
  DatasetFacts facts() const override;
  const TextTableOptions& source() const { return source_; }

 private:
  std::string place(int64_t index, const std::string& field) const;
  std::vector<std::string> texts(const std::string& column) const;
  ByteArrays encoded(const TextRows& table) const;
  void use(ByteArrays arrays, size_t num_texts);
  std::string cache_key() const;
  bool needs_labels() const;
  void require_labels() const;
  bool leaves_out_unlabelled() const { return source_.leaves_out_unlabelled && needs_labels(); }
  void leave_out_unlabelled(TextRows& table);
  bool has_numbers() const { return target_ == Target::kNumber || target_ == Target::kScore; }
  void read_numbers();
  void check_classes(const at::Tensor& indices) const;
  void number_labels(const std::vector<std::string>& classes);

  TextTableOptions source_;
  EncodingOptions encoding_;
  std::optional<std::vector<std::string>> classes_;
  std::optional<int64_t> num_samples_;
  Target target_;
  PaddedTexts tokens_;
  std::vector<std::string> names_;  // of each sample, its label
  std::vector<int64_t> labels_;     // the number of that
  std::vector<float> numbers_;      // in place of labels_, where the target is a number
  std::vector<int64_t> lines_;
  std::vector<std::string> places_;  // of the rows that open_rows was given
  std::vector<std::string> notes_;
};

}  // namespace trainrun
