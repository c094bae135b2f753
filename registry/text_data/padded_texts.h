#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/kinds/dataset.h"
#include "registry/text_data/token_cache.h"

namespace trainrun {

/// How long the texts of a batch are made.
enum class TextPadding { kLongest, kMaxLength };
template <>
struct Words<TextPadding> {
  static constexpr std::array kWords = {"longest", "max_length"};
};

/// How texts become numbers.
struct EncodingOptions : NewTokens {
  std::string tokenizer;
  int64_t max_length = 128;
  TextPadding padding = TextPadding::kLongest;
  int64_t pad_to_multiple_of = 1;
  TokenCaching cache = TokenCaching::kNone;

  template <class T>
  static void describe_into(Fields<T>& f) {
    f.required("tokenizer", &T::tokenizer)
        .doc(
            "a folder with tokenizer.json, vocab.txt, vocab.json and "
            "merges.txt, or tokenizer.model, as Hugging Face "
            "has it; or one of these files; or the name of a model on "
            "its hub");
    NewTokens::describe_into(f);
    f.optional("max_length", &T::max_length)
        .at_least(1)
        .unit("tokens")
        .doc(
            "longer texts are cut to this, special tokens included; of a "
            "pair, the longer one first");
    f.optional("padding", &T::padding)
        .doc(
            "longest: to the longest text of the batch; max_length: always to "
            "max_length");
    f.optional("pad_to_multiple_of", &T::pad_to_multiple_of)
        .at_least(1)
        .unit("tokens")
        .doc(
            "with padding: longest, the length is rounded up to a multiple of "
            "this, at most to max_length");
    f.optional("cache", &T::cache).doc(kTokenCachingHelp);
  }
};

/// Texts as encoders read them, one after the other.
struct TextArrays {
  std::vector<int32_t> ids;
  std::vector<uint8_t> type_ids;
  std::vector<int64_t> begins = {0};  // of each text, and the end
  std::vector<int64_t> padding;       // the token, and whether it comes first

  explicit TextArrays(const Tokenizer& tokenizer);
  void add(const Encoding& text);
  /// As PaddedTexts reads them; what more there is to keep comes behind.
  std::vector<std::string_view> bytes() const;
};
constexpr size_t kTextArrays = 4;

/// Where the tokens of a text begin among those of all, and how many they are.
struct TextStretch {
  int64_t begin = 0;
  int64_t count = 0;
};

/// The tokens of texts, which are filled up when a batch is made.
class PaddedTexts {
 public:
  /// What TextArrays::bytes gave; what came behind stays in memory. False: it is of another number of texts, or damaged.
  bool read(ByteArrays arrays, size_t num_texts);
  int64_t num_tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t num_texts() const { return static_cast<int64_t>(begins_.size()) - 1; }
  TextStretch stretch(int64_t text) const;
  std::vector<TextStretch> stretches(const at::Tensor& texts) const;
  std::span<const int64_t> begins() const { return begins_; }
  /// The longest text's tokens; 0: there is none.
  int64_t longest() const;
  int64_t pad_id() const { return pad_id_; }

  /// Where the text's first token is in a row of `length`.
  int64_t first_of(const TextStretch& text, int64_t length) const { return pads_left_ ? length - text.count : 0; }
  /// `input_ids`, `attention_mask` and `token_type_ids`, [N, length] int64; their names begin with `prefix`.
  Batch batch(const std::vector<TextStretch>& texts, int64_t length, const std::string& prefix = "") const;
  /// Their numbers, [N] int64. Throws DataError where all are filled up to max_length.
  at::Tensor lengths(const EncodingOptions& encoding) const;

 private:
  ByteArrays arrays_;  // where the next three lie
  std::span<const int32_t> ids_;
  std::span<const uint8_t> type_ids_;
  std::span<const int64_t> begins_;
  int64_t pad_id_ = 0;
  bool pads_left_ = false;
};

/// How long the texts of a batch are made.
int64_t padded_length(const std::vector<TextStretch>& texts, const EncodingOptions& encoding);

/// The fields that PaddedTexts::batch gives, at most `max_length` long: batches may be shorter.
void add_text_fields(DatasetInfo& info, int64_t max_length, const std::string& prefix = "");

}  // namespace trainrun
