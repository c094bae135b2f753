#include "tests/parity/tokenizer_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include <chrono>

#include "registry/formats/text/new_tokens.h"
#include "tests/parity/probe_spec.h"

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

struct AddedInRequest : NewTokens {
  static void describe(Fields<AddedInRequest>& f) { describe_into(f); }
};

/// `path`, and what `new_tokens` adds, if the request says so.
std::shared_ptr<const Tokenizer> tokenizer_of(const json& request) {
  if (!request.contains("new_tokens")) return open_tokenizer(request.at("path").get<std::string>());
  const auto added = read_text_spec<AddedInRequest>(Catalog(), request.at("new_tokens"));  // a text: in its order
  return open_tokenizer(added.in(request.at("path")));
}

}  // namespace

json encode_texts(const json& request, const TensorMap& first, const TensorMap& second, TensorMap& results) {
  const auto tokenizer = tokenizer_of(request);
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
  const auto tokenizer = tokenizer_of(request);
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

}  // namespace trainrun
