#include <cstdint>

#include "registry/formats/files/file_mapping.h"
#include "registry/kinds/dataset.h"
#include "registry/text_data/token_windows.h"

namespace trainrun {

enum class TokenWidth { kTwo, kFour };
template <>
struct Words<TokenWidth> {
  static constexpr std::array kWords = {"uint16", "uint32"};
};

namespace {

struct TokenFile : BlockOptions {
  std::string path;
  TokenWidth dtype = TokenWidth::kTwo;

  static void describe(Fields<TokenFile>& f) {
    f.required("path", &TokenFile::path).doc("a file of tokens and nothing else, such as nanoGPT's train.bin");
    f.optional("dtype", &TokenFile::dtype).doc("what a token is, in the order of bytes of x86: little-endian");
    BlockOptions::describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class TokenFileDataset : public TokenWindows {
 public:
  explicit TokenFileDataset(TokenFile options) : TokenWindows(options), options_(std::move(options)) {}

  void open() override {
    const auto file = std::make_shared<const FileMapping>(options_.path);
    const std::string_view bytes = file->bytes();
    const bool is_wide = options_.dtype == TokenWidth::kFour;
    const size_t width = is_wide ? sizeof(uint32_t) : sizeof(uint16_t);
    if (bytes.size() % width != 0) {
      throw DataError(options_.path + ": its " + std::to_string(bytes.size()) + " bytes are not a multiple of the " +
                      std::to_string(width) + " bytes of a token; is dtype right, or was the file cut off?");
    }
    TokenRow tokens;
    tokens.owner = file;
    tokens.size = static_cast<int64_t>(bytes.size() / width);
    if (is_wide) {
      tokens.wide = reinterpret_cast<const uint32_t*>(bytes.data());  // a mapping begins at a page
    } else {
      tokens.narrow = reinterpret_cast<const uint16_t*>(bytes.data());
    }
    set_tokens(std::move(tokens), options_.path);
  }

 private:
  TokenFile options_;
};

std::unique_ptr<Dataset> TokenFile::build(const DatasetInputs&) const {
  return std::make_unique<TokenFileDataset>(*this);
}

}  // namespace

void add_token_file(DatasetRegistry& datasets) {
  datasets.add<TokenFile>("TokenFile",
                          "a file of tokens, mapped into memory: samples for causal language modelling; labels are "
                          "already shifted: each is the next token");
}

}  // namespace trainrun
