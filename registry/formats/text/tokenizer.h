#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// What a tokenizer makes of a text or a pair of texts.
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<int64_t> type_ids;  // 0 for the first text, 1 for the second, as the post-processor says
  std::vector<bool> special;      // whether the post-processor added it
};

/// What a tokenizer makes of a text that is given word by word.
struct WordEncoding : Encoding {
  std::vector<int64_t> words;  // of each token, the number of the word that it is of, from 0; -1: a special token
};

/// How a text that is too long is cut. Special tokens count for the length, and stay.
struct Truncation {
  enum class Strategy {
    kLongestFirst,  // of a pair, the longer one is cut first, then both
    kOnlyFirst,
    kOnlySecond,
  };
  enum class Side { kRight, kLeft };  // where tokens go
  int64_t max_length = 0;
  Strategy strategy = Strategy::kLongestFirst;
  Side side = Side::kRight;
};

/// How texts of a batch are made equally long.
struct Padding {
  int64_t id = 0;
  int64_t type_id = 0;
  bool left = false;
  std::optional<int64_t> length;       // that of all; else the longest of a batch
  std::optional<int64_t> multiple_of;  // rounded up to
};

/// One text, or two that belong together.
struct TextPair {
  std::string_view first;
  std::optional<std::string_view> second;
};

/// Turns texts into ids and back. Safe to call from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Text is UTF-8; invalid bytes become U+FFFD as in Python's errors="replace". Truncation and padding, also those that
  /// the tokenizer's own file asks for, are left to the caller.
  Encoding encode(std::string_view text, bool add_special_tokens = true) const;
  Encoding encode_pair(std::string_view first, std::string_view second, bool add_special_tokens = true) const;
  /// Without special tokens in the length where none are added. Throws DataError where the text that may be cut is too
  /// short for that, or there is no room for the special tokens.
  virtual Encoding encode(const TextPair& texts, const std::optional<Truncation>& truncation,
                          bool add_special_tokens) const = 0;
  /// The same for one text that is given word by word, each of which is read by itself, as transformers' fast tokenizers do
  /// with is_split_into_words and, where blanks are part of tokens (GPT-2, RoBERTa), add_prefix_space.
  virtual WordEncoding encode_words(std::span<const std::string> words, const std::optional<Truncation>& truncation,
                                    bool add_special_tokens = true) const = 0;
  /// The text of these ids; ids that are no token's are left out.
  virtual std::string decode(const std::vector<int64_t>& ids, bool skip_special_tokens = true) const = 0;

  /// One more than the highest id, with added tokens: how many rows an embedding must have.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int64_t> id_of(const std::string& token) const = 0;
  virtual std::optional<std::string> token_of(int64_t id) const = 0;
  /// The id of "pad", "bos", "eos", "unk", "sep", "cls" or "mask", if the tokenizer's files name one.
  virtual std::optional<int64_t> special_id(const std::string& role) const = 0;
  /// Whether the token was added to the model's vocabulary, and whether decoding leaves it out.
  virtual bool is_added(int64_t id) const = 0;
  virtual bool is_special(int64_t id) const = 0;
  std::optional<int64_t> pad_id() const { return special_id("pad"); }

  /// Where tokens of a text go that is too long, by the tokenizer's files.
  virtual Truncation::Side truncation_side() const { return Truncation::Side::kRight; }
  /// Whether texts of a batch are filled up on the left, by the tokenizer's files.
  virtual bool pads_left() const { return false; }
  /// What the tokenizer's own file asks for.
  virtual std::optional<Truncation> file_truncation() const { return std::nullopt; }
  virtual std::optional<Padding> file_padding() const { return std::nullopt; }
};

/// Encodes texts on LibTorch's threads (at::set_num_threads), in their order.
std::vector<Encoding> encode_batch(const Tokenizer& tokenizer, const std::vector<TextPair>& texts,
                                   const std::optional<Truncation>& truncation = std::nullopt,
                                   bool add_special_tokens = true);

/// How many tokens of each text stay, so that both have at most `room` together (that is, without special tokens).
/// `second` is nothing for a single text. Throws DataError where the strategy cannot do that.
struct KeptTokens {
  int64_t first, second;
};
KeptTokens truncated_lengths(int64_t first, std::optional<int64_t> second, int64_t room, Truncation::Strategy strategy);

/// The tokenizer's own file in a folder: of those that are there, the one that says the most. Nothing: there is none.
std::optional<std::string> find_tokenizer(const std::string& folder);
/// The names of all files in a folder that make up its tokenizer and its chat template, always in the same order.
std::vector<std::string> tokenizer_files(const std::string& folder);
/// The paths of all files that open_tokenizer(path) reads, always in the same order. Throws DataError.
std::vector<std::string> files_of_tokenizer(const std::string& path);
/// SHA-256 of what these files are called and hold.
std::string tokenizer_digest(const std::string& path);
/// Opens a folder (tokenizer.json, or vocab.txt, or vocab.json and merges.txt, or tokenizer.model) or one such file, or
/// the tokenizer of a model by its name (web/named_sources.h). Throws DataError.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path);
/// What a user should know of the files beside a tokenizer's own: their keys of which nothing is known here.
std::vector<std::string> tokenizer_notes(const std::string& path);

}  // namespace trainrun
