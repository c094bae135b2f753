#include "tests/parity/tokenizer_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include <chrono>

#include "registry/error.h"
#include "registry/sample_draws.h"
#include "registry/text/tokenizer.h"
#include "registry/text/tokenizer_files.h"

namespace trainrun {
namespace {

using nlohmann::json;
using TensorMap = std::map<std::string, at::Tensor>;

/// The texts between the ends.
std::vector<std::string_view> texts_of(const TensorMap& tensors) {
  const at::Tensor &bytes = tensors.at("bytes"), &ends = tensors.at("ends");
  const auto* start = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  std::vector<std::string_view> texts;
  int64_t begin = 0;
  for (int64_t i = 0; i < ends.numel(); ++i) {
    const int64_t end = ends.const_data_ptr<int64_t>()[i];
    texts.emplace_back(start + begin, static_cast<size_t>(end - begin));
    begin = end;
  }
  return texts;
}

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType dtype) {
  return at::from_blob(const_cast<T*>(values.data()), {static_cast<int64_t>(values.size())}, at::TensorOptions(dtype))
      .clone();
}

std::optional<Truncation> truncation_of(const json& request) {
  if (!request.contains("max_length")) return std::nullopt;
  Truncation truncation;
  truncation.max_length = request["max_length"];
  const std::string strategy = request.value("strategy", "longest_first");
  if (strategy == "only_first") truncation.strategy = Truncation::Strategy::kOnlyFirst;
  if (strategy == "only_second") truncation.strategy = Truncation::Strategy::kOnlySecond;
  if (request.value("side", "right") == "left") truncation.side = Truncation::Side::kLeft;
  return truncation;
}

/// Another value in the place of one: of another type, or one that is hard on its reader.
json hard_value(RandomStream& random) {
  switch (random.integer(10)) {
    case 0:
      return nullptr;
    case 1:
      return -1;
    case 2:
      return 1e300;
    case 3:
      return uint64_t{1} << 63;
    case 4:
      return "";
    case 5:
      return "\u2581";
    case 6:
      return json::array({1, "a"});
    case 7:
      return {{"type", "Sequence"}};
    case 8:
      return "((a+)+)+[";
    default:
      return random.integer(300);
  }
}

/// A value somewhere in the document, each way down taken at random.
json* place_in_json(json& value, RandomStream& random) {
  json* place = &value;
  while (place->is_structured() && !place->empty() && random.integer(8) > 0) {
    auto child = place->begin();
    std::advance(child, random.integer(static_cast<int64_t>(place->size())));
    place = &*child;
  }
  return place;
}

void change_json(json& file, const json& other_file, RandomStream& random) {
  json other = other_file;
  json* place = place_in_json(file, random);
  const int64_t how = random.integer(4);
  if (how == 0 && place->is_structured() && !place->empty()) {
    auto child = place->begin();
    std::advance(child, random.integer(static_cast<int64_t>(place->size())));
    place->erase(child);
  } else if (how == 1) {
    *place = json(*place_in_json(other, random));
  } else if (how == 2) {
    json inner = *place_in_json(file, random);
    *place_in_json(file, random) = std::move(inner);
  } else {
    *place = hard_value(random);
  }
}

std::string changed_file(const std::string& content, const std::string& other, RandomStream& random) {
  if (random.integer(4) == 0) {
    std::string file = content;
    const auto at = static_cast<size_t>(random.integer(static_cast<int64_t>(file.size())));
    if (random.integer(2) == 0) return file.substr(0, at);
    file[at] = static_cast<char>(file[at] ^ (1 << random.integer(8)));
    return file;
  }
  json file = json::parse(content);
  const json other_file = json::parse(other);
  for (int64_t i = 1 + random.integer(3); i > 0; --i) change_json(file, other_file, random);
  return file.dump();
}

void use(const Tokenizer& tokenizer) {
  const Encoding encoding =
      tokenizer.encode_pair("Hello, w\u00F6rld's 123  \u4F60\u597D <s>", "\xFF \U0001F600\n\t\u0301x");
  for (const int64_t id : encoding.ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) throw std::logic_error("an id is beyond the vocabulary");
  }
  tokenizer.decode(encoding.ids, false);
  tokenizer.decode({0, 1, 2, 3, -1, INT64_MAX}, true);
}

}  // namespace

json encode_texts(const json& request, const TensorMap& first, const TensorMap& second, TensorMap& results) {
  const auto tokenizer = open_tokenizer(request.at("path"));
  std::vector<TextPair> texts;
  for (const std::string_view text : texts_of(first)) texts.push_back({text, std::nullopt});
  if (!second.empty()) {
    const std::vector<std::string_view> seconds = texts_of(second);
    for (size_t i = 0; i < texts.size(); ++i) texts[i].second = seconds.at(i);
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Encoding> encodings =
      encode_batch(*tokenizer, texts, truncation_of(request), request.value("add_special_tokens", true));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<int64_t> ids, ends, types, special;
  for (const Encoding& encoding : encodings) {
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    types.insert(types.end(), encoding.type_ids.begin(), encoding.type_ids.end());
    special.insert(special.end(), encoding.special.begin(), encoding.special.end());
    ends.push_back(static_cast<int64_t>(ids.size()));
  }
  results = {{"values", tensor_of(ids, at::kLong)},
             {"ends", tensor_of(ends, at::kLong)},
             {"types", tensor_of(types, at::kLong)},
             {"special", tensor_of(special, at::kLong)}};
  json roles = json::object();
  for (const char* role : {"pad", "bos", "eos", "unk", "sep", "cls", "mask"}) {
    if (const auto id = tokenizer->special_id(role)) roles[role] = *id;
  }
  return {{"seconds", seconds}, {"vocab_size", tokenizer->vocab_size()}, {"special_ids", roles}};
}

json decode_ids(const json& request, const TensorMap& ids, TensorMap& results) {
  const auto tokenizer = open_tokenizer(request.at("path"));
  const at::Tensor &values = ids.at("values"), &ends = ids.at("ends");
  std::string bytes;
  std::vector<int64_t> text_ends;
  int64_t begin = 0;
  for (int64_t i = 0; i < ends.numel(); ++i) {
    const int64_t end = ends.const_data_ptr<int64_t>()[i];
    bytes += tokenizer->decode({values.const_data_ptr<int64_t>() + begin, values.const_data_ptr<int64_t>() + end},
                               request.value("skip_special_tokens", true));
    text_ends.push_back(static_cast<int64_t>(bytes.size()));
    begin = end;
  }
  results = {{"bytes", tensor_of(std::vector<char>(bytes.begin(), bytes.end()), at::kByte)},
             {"ends", tensor_of(text_ends, at::kLong)}};
  return json::object();
}

FuzzResult fuzz_tokenizers(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed) {
  FuzzResult result;
  RandomStream random(seed);
  const auto any = [&] { return contents[static_cast<size_t>(random.integer(static_cast<int64_t>(contents.size())))]; };
  for (int64_t round = 0; round < rounds; ++round) {
    const std::string content = changed_file(any(), any(), random);
    json file;
    try {
      file = json::parse(content);
    } catch (const json::exception&) {
      ++result.refused;
      continue;
    }
    try {
      use(PipelineTokenizer(read_tokenizer_json("tokenizer.json", file)));
      ++result.decoded;
    } catch (const DataError&) {
      ++result.refused;
    }
  }
  return result;
}

}  // namespace trainrun
