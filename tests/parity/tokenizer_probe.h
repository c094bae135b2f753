#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>

namespace trainrun {

/// Encodes the texts "first.bytes", which end at "first.ends" (and "second", if it is there), with the tokenizer of the
/// request's `path`; the ids come back as "ids.values" and "ids.ends", the type ids as "types.values", what is special
/// as "special.values". Texts are bytes, so that they need not be UTF-8.
nlohmann::json encode_texts(const nlohmann::json& request, const std::map<std::string, at::Tensor>& first,
                            const std::map<std::string, at::Tensor>& second,
                            std::map<std::string, at::Tensor>& results);

/// Decodes "ids.values", which end at "ids.ends", into "text.bytes" and "text.ends".
nlohmann::json decode_ids(const nlohmann::json& request, const std::map<std::string, at::Tensor>& ids,
                          std::map<std::string, at::Tensor>& results);

}  // namespace trainrun
