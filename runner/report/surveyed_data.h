#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

struct DataSurveyOptions {
  int64_t shown = 24;        // samples of each set
  int64_t measured = 2000;   // of each set, for means and deviations
  int64_t compared = 50000;  // of each set, whether they are alike
};

/// One set of data as it reaches the model, through its transforms.
struct SurveyedSet {
  /// The numbers of a channel or a column.
  struct Column {
    std::string name;  // "image: red", "age"
    double mean = 0, deviation = 0, least = 0, most = 0;
    int64_t not_finite = 0;
  };
  struct ClassCount {
    std::string name;
    int64_t count = 0;
  };
  /// A sample's tokens in one field, as they lie in its batch.
  struct TokenRow {
    struct Token {
      std::string text;      // as the vocabulary has it; its number where there is no vocabulary
      bool padding = false;  // what fills the sample up to the batch's length
      bool counts = false;   // the loss compares what the model says here with a target
    };
    std::string field;    // "input_ids"
    std::string decoded;  // the text of all tokens; "" where there is no vocabulary
    std::vector<Token> tokens;
    bool has_targets = false;  // whether targets are tokens, so that `counts` says something
  };
  struct Sample {
    std::string place;  // its file, or its number
    std::string label;
    at::Tensor input;  // without the batch; undefined where there are tokens
    std::vector<TokenRow> rows;
  };
  /// The tokens of one field in all samples measured.
  struct Tokens {
    struct Bar {
      int64_t least = 0, most = 0;  // lengths
      int64_t count = 0;            // samples
    };
    std::string field;
    int64_t shortest = 0, median = 0, long_one = 0, longest = 0;  // long_one: of 95 % none is longer
    double mean_length = 0;
    std::vector<Bar> lengths;
    double padding_share = 0;  // of all positions of the batches
    std::optional<double>
        target_share;                // of the tokens, how many have a target that counts; null: targets are not tokens
    std::optional<int64_t> unknown;  // tokens that stand for what the tokenizer does not know
    int64_t total = 0;               // tokens without padding
    int64_t distinct = 0;            // different tokens among them
    std::optional<int64_t> vocabulary;  // tokens that there are
  };

  /// What `dataloader.group_by_length` does to the first epoch: how much of its batches is padding, with and without.
  struct Grouping {
    bool is_on = false;
    double grouped = 0;
    double shuffled = 0;
  };

  std::string name;  // "train", "eval", "eval/clean"
  int64_t samples = 0;
  int64_t measured = 0;
  std::vector<Column> columns;
  std::vector<Tokens> tokens;
  std::optional<Grouping> grouping;  // where it is on, or would save much
  std::vector<ClassCount> classes;   // of the target; empty: it holds none
  std::string counted;               // "samples", "pixels"
  std::vector<Sample> shown;
};

/// "group_by_length: 8.1 % of the first epoch's batches is padding; without it, 41.2 %"
std::string grouping_text(const SurveyedSet::Grouping& grouping);

/// What a recipe's model will see.
struct DataSurvey {
  std::string name;
  std::string path;
  std::vector<SurveyedSet> sets;
  std::vector<std::string> contract;  // DataContract::lines: what the model will know of its data
  std::vector<std::string> warnings;  // of what is suspicious
  std::vector<std::string> leaks;     // of these, what makes figures better than they will be for new data
};

}  // namespace trainrun
