#include <nlohmann/json.hpp>

#include <algorithm>

#include "registry/formats/files/file_io.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

/// The lines of a file, without what ends them.
std::vector<std::string> read_lines(const std::string& file) {
  const std::string content = read_file(file, kMostTokenizerBytes);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const size_t length = end - begin - (end > begin && content[end - 1] == '\r' ? 1 : 0);
    lines.push_back(content.substr(begin, length));
    if (const size_t valid = valid_utf8_length(lines.back()); valid < length) {
      throw DataError(file + ":" + std::to_string(lines.size()) + ": byte " + std::to_string(valid + 1) +
                      " of the line is not UTF-8; convert the file to UTF-8");
    }
    begin = end + 1;
  }
  return lines;
}

/// The class that the tokenizer's folder names, without "Fast" at its end, must be one of these.
void check_class(const TokenizerConfig& config, const std::vector<std::string>& known, const std::string& file) {
  std::string name = config.tokenizer_class;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  throw DataError(file + ": a tokenizer of the class " + name + ", as " + config.file +
                  " has it, cannot be made from this file alone; expected " + join(known, " or ") +
                  ", or the folder's tokenizer.json");
}

/// What Python's tokenizers would put around a text besides.
void refuse_more_ends(const TokenizerConfig& config) {
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    if (!config.flag(key, false)) continue;
    throw DataError(config.file + ": " + key +
                    ": true is not available with a vocabulary file; save the tokenizer with "
                    "transformers, as tokenizer.json");
  }
}

/// The special tokens among the vocabulary's, and those that the configuration adds.
AddedTokens added_tokens(const TokenizerConfig& config, std::vector<AddedToken> specials, const Pipeline& parts) {
  const Vocabulary& vocabulary = parts.model->vocabulary();
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : config.added_tokens) {
    const auto known = vocabulary.find(token.content);
    const std::string* other = vocabulary.token(token.id);
    if ((known && *known != token.id) || (other && *other != token.content)) {
      throw DataError(config.file + ": added_tokens_decoder: the id " + std::to_string(token.id) + " of \"" +
                      token.content + "\" contradicts the vocabulary");
    }
    tokens.push_back(token);
  }
  for (AddedToken& token : specials) {
    const auto id = vocabulary.find(token.content);
    const bool there =
        std::any_of(tokens.begin(), tokens.end(), [&](const auto& t) { return t.content == token.content; });
    if (!id || there) continue;
    token.id = *id;
    tokens.push_back(token);
  }
  return {std::move(tokens), parts.normalizer.get()};
}

int64_t required(const TextModel& model, const std::string& token, const std::string& file) {
  const auto id = model.vocabulary().find(token);
  if (!id) throw DataError(file + ": the token \"" + token + "\" is missing");
  return *id;
}

AddedToken special_token(const std::string& content) {
  AddedToken token;
  token.content = content;
  token.special = true;
  return token;
}

/// Those that a family's tokenizers have where the configuration names no others.
void set_special_tokens(Pipeline& parts, const TokenizerConfig& config, std::map<std::string, std::string> usual) {
  parts.special_tokens = config.special_tokens;
  parts.special_tokens.merge(usual);
}

Merges read_merge_lines(const std::string& file) {
  Merges merges;
  const std::vector<std::string> lines = read_lines(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with("#version") || line.empty()) continue;
    const size_t blank = line.find(' ');
    if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) {
      throw DataError(file + ":" + std::to_string(i + 1) + ": expected two tokens with a space between them");
    }
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  return merges;
}

/// Names the file in the errors of a model that is made from it.
template <class Make>
std::unique_ptr<const TextModel> model_of_file(const std::string& file, const Make& make) {
  try {
    return make();
  } catch (const DataError& error) {
    throw DataError(file + ": " + error.what());
  }
}

}  // namespace

Pipeline read_vocab_txt(const std::string& file, const TokenizerConfig& config) {
  check_class(config, {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}, file);
  refuse_more_ends(config);
  Pipeline parts;
  set_special_tokens(parts, config,
                     {{"unk", "[UNK]"}, {"sep", "[SEP]"}, {"pad", "[PAD]"}, {"cls", "[CLS]"}, {"mask", "[MASK]"}});
  auto normalizer = std::make_unique<BertNormalizer>();
  normalizer->lowercase = config.flag("do_lower_case", true);
  normalizer->handle_chinese_chars = config.flag("tokenize_chinese_chars", true);
  normalizer->strip_accents = config.flag("strip_accents", normalizer->lowercase);
  parts.normalizer = std::move(normalizer);
  parts.pre_tokenizer = bert_pre_tokenizer();
  Vocabulary vocabulary;
  for (const std::string& line : read_lines(file)) {
    const auto id = static_cast<int64_t>(vocabulary.size());
    if (!vocabulary.add(line, id)) {
      throw DataError(file + ":" + std::to_string(id + 1) + ": the token \"" + line + "\" is listed twice");
    }
  }
  WordPieceOptions options;
  options.unknown = parts.special_tokens.at("unk");
  parts.model = model_of_file(file, [&] { return word_piece_model(std::move(vocabulary), options); });
  std::vector<AddedToken> specials;
  for (const auto& [role, token] : parts.special_tokens) specials.push_back(special_token(token));
  parts.added = added_tokens(config, std::move(specials), parts);
  parts.post_processor = PostProcessor::bert(required(*parts.model, parts.special_tokens.at("cls"), file),
                                             required(*parts.model, parts.special_tokens.at("sep"), file));
  parts.decoder = word_piece_decoder(options.continuing_prefix, true);
  return parts;
}

Pipeline read_vocab_and_merges(const std::string& vocab_file, const std::string& merges_file,
                               const TokenizerConfig& config) {
  check_class(config, {"GPT2Tokenizer", "RobertaTokenizer"}, vocab_file);
  refuse_more_ends(config);
  Pipeline parts;
  const nlohmann::json content = read_json_file(vocab_file);
  Vocabulary vocabulary(JsonNode(vocab_file, content));
  const Merges merges = read_merge_lines(merges_file);
  parts.model = model_of_file(merges_file, [&] { return byte_pair_model(std::move(vocabulary), merges, {}); });
  const bool roberta = config.tokenizer_class.empty()
                           ? parts.model->vocabulary().find("<s>") && parts.model->vocabulary().find("</s>")
                           : config.tokenizer_class.starts_with("Roberta");
  set_special_tokens(parts, config,
                     roberta ? std::map<std::string, std::string>{{"bos", "<s>"},
                                                                  {"eos", "</s>"},
                                                                  {"sep", "</s>"},
                                                                  {"cls", "<s>"},
                                                                  {"unk", "<unk>"},
                                                                  {"pad", "<pad>"},
                                                                  {"mask", "<mask>"}}
                             : std::map<std::string, std::string>{
                                   {"bos", "<|endoftext|>"}, {"eos", "<|endoftext|>"}, {"unk", "<|endoftext|>"}});
  std::vector<AddedToken> specials;
  for (const auto& [role, token] : parts.special_tokens) {
    AddedToken special = special_token(token);
    special.lstrip = roberta && role == "mask";
    specials.push_back(special);
  }
  parts.pre_tokenizer = byte_level_pre_tokenizer(config.flag("add_prefix_space", false), true);
  parts.added = added_tokens(config, std::move(specials), parts);
  parts.decoder = byte_level_decoder();
  if (roberta) {
    parts.post_processor = PostProcessor::roberta(required(*parts.model, parts.special_tokens.at("cls"), vocab_file),
                                                  required(*parts.model, parts.special_tokens.at("sep"), vocab_file));
  }
  return parts;
}

}  // namespace trainrun
